package baseline

import "math/bits"

// schedule is an algorithm: the messages that a host sends at first, and the ones it sends because
// a message has come.
type schedule interface {
	begin(h *host)
	arrived(h *host, m message)
}

// ring passes each shard on from host to host until the next one is where it
// began: an Allgather. Of a Reduce-Scatter shard j begins at host j+1 and so
// ends at host j, its owner.
type ring struct {
	*stream
	number int // of the stream
	shift  int // from a shard's number to the host where it begins
}

func (g ring) begin(h *host) {
	shard := (int(h.rank) - g.shift + g.shards) % g.shards
	for i := range g.segments {
		h.send(g.number, (int(h.rank)+1)%g.shards, shard*g.segments+i, 1)
	}
}

func (g ring) arrived(h *host, m message) {
	next := (int(h.rank) + 1) % g.shards
	if shard := int(m.first) / g.segments; next != (shard+g.shift)%g.shards {
		h.send(g.number, next, int(m.first), 1)
	}
}

// linear sends each shard from its owner to all others, beginning with the next.
type linear struct{ *stream }

func (l linear) begin(h *host) {
	rank := int(h.rank)
	for to := 1; to < l.shards; to++ {
		for i := range l.segments {
			h.send(0, (rank+to)%l.shards, rank*l.segments+i, 1)
		}
	}
}

func (linear) arrived(*host, message) {}

// doubling exchanges in step k all shards of a host with the host 2^k away, where the number of
// hosts is a power of two. Otherwise it is Bruck's algorithm: a host sends to the one 2^k before
// it, and its shards are consecutive, from its own upwards.
type doubling struct {
	*stream
	step []int  // by rank: the step in which it awaits a message
	come []uint // by rank: bit k: the message of step k has come
}

func (d *doubling) steps() int { return bits.Len(uint(d.shards - 1)) } // at least 2

// message returns the destination of a rank's message in a step, and the shards in it.
func (d *doubling) message(rank, step int) (to, first, count int) {
	span := 1 << step
	if d.shards&(d.shards-1) == 0 {
		return rank ^ span, rank &^ (span - 1), span
	}
	return (rank - span + d.shards) % d.shards, rank, min(span, d.shards-span)
}

func (d *doubling) begin(h *host) { d.send(h) }

func (d *doubling) send(h *host) {
	to, first, count := d.message(int(h.rank), d.step[h.rank])
	h.send(0, to, first, count)
}

// arrived notes the step that a message belongs to; in the last step the number of shards does not
// tell it. Messages of later steps may come before a message of this one.
func (d *doubling) arrived(h *host, m message) {
	rank := int(h.rank)
	step := bits.Len(uint(m.count)) - 1 // at least 1
	if d.shards&(d.shards-1) != 0 {
		step = bits.Len(uint((int(m.first)-rank+d.shards)%d.shards)) - 1
	}
	d.come[rank] |= 1 << step
	for d.come[rank]>>d.step[rank]&1 == 1 {
		d.step[rank]++
		if d.step[rank] < d.steps() {
			d.send(h)
		}
	}
}

// tree passes a Broadcast's segments down a tree of ranks, counted from the root.
type tree struct {
	*stream
	root, hosts int
	children    func(v, hosts int, visit func(child int))
}

func (t tree) begin(h *host) {
	if int(h.rank) == t.root {
		for i := range t.segments {
			t.pass(h, i)
		}
	}
}

func (t tree) arrived(h *host, m message) { t.pass(h, int(m.first)) }

func (t tree) pass(h *host, piece int) {
	t.children((int(h.rank)-t.root+t.hosts)%t.hosts, t.hosts, func(child int) {
		h.send(0, (child+t.root)%t.hosts, piece, 1)
	})
}

// chain is a tree in which each has one child.
func chain(v, hosts int, visit func(int)) {
	if v+1 < hosts {
		visit(v + 1)
	}
}

// binary is the balanced binary tree.
func binary(v, hosts int, visit func(int)) {
	for child := 2*v + 1; child <= 2*v+2 && child < hosts; child++ {
		visit(child)
	}
}

// knomial returns the k-nomial tree: a node's children differ from it in one
// digit, base k, below its lowest that is not zero; the largest subtrees first.
func knomial(k int) func(v, hosts int, visit func(int)) {
	return func(v, hosts int, visit func(int)) {
		low := 1
		for low < hosts && v%(low*k) == 0 {
			low *= k
		}
		for low /= k; low > 0; low /= k {
			for child := v + low; child < v+k*low && child < hosts; child += low {
				visit(child)
			}
		}
	}
}
