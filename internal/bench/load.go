package bench

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// load is an operation with its buffers. Of its methods only run is timed.
type load interface {
	// fill writes what this rank sends in an iteration.
	fill(iter int)
	// run is the collective.
	run() error
	// check returns how many elements of the result are wrong.
	check(iter int) uint64
	// copies moves by plain copy as many bytes as the operation brings to, or
	// takes from, a rank, and returns how many those are: what the memory of
	// the machine allows.
	copies() int
}

// participant is what all loads know: the group and where this rank stands in it.
type participant struct {
	group       Contender
	rank, ranks int
}

// nodes returns the ranks of each host, if hosts sum first; else nil.
func (p participant) nodes() [][]int {
	if g, ok := p.group.(interface{ Nodes() [][]int }); ok {
		return g.Nodes()
	}
	return nil
}

// allgather sends the table of each rank to all.
type allgather struct {
	participant
	send, recv []byte
	inPlace    bool
	tables     [][]byte
}

// gatherOf returns an Allgather with room for shards of n bytes.
func gatherOf(p participant, n int, inPlace bool) *allgather {
	a := &allgather{participant: p, recv: make([]byte, n*p.ranks), inPlace: inPlace, tables: tables(reduce.U8, p.ranks)}
	if inPlace {
		a.send = a.recv[p.rank*n:][:n:n]
	} else {
		a.send = make([]byte, n)
	}
	return a
}

func (a *allgather) fill(iter int) { fill(a.send, a.tables[a.rank], iter) }

func (a *allgather) run() error { return a.group.Allgather(a.send, a.recv) }

func (a *allgather) check(iter int) (n uint64) {
	for r, table := range a.tables {
		n += wrong(a.recv[r*len(a.send):][:len(a.send)], table, iter, 0)
	}
	return n
}

func (a *allgather) copies() (n int) {
	for r := range a.ranks {
		if r != a.rank || !a.inPlace {
			n += copy(a.recv[r*len(a.send):], a.send)
		}
	}
	return n
}

// broadcast sends the root's table to all.
type broadcast struct {
	participant
	root         int
	buf, scratch []byte
	table        []byte
}

func broadcastOf(p participant, n, root int) *broadcast {
	b := &broadcast{
		participant: p, root: root, buf: make([]byte, n), scratch: make([]byte, n), table: table(reduce.U8, root),
	}
	fill(b.scratch, b.table, 0)
	return b
}

func (b *broadcast) fill(iter int) {
	if b.rank == b.root {
		fill(b.buf, b.table, iter)
	}
}

func (b *broadcast) run() error { return b.group.Broadcast(b.buf, b.root) }

func (b *broadcast) check(iter int) uint64 { return wrong(b.buf, b.table, iter, 0) }

func (b *broadcast) copies() int { return copy(b.buf, b.scratch) }

// reduceScatter reduces the tables of all ranks.
type reduceScatter struct {
	participant
	send, recv []byte
	dtype      reduce.Type
	op         reduce.Op
	own, sum   []byte // tables
}

// scatterOf returns a Reduce-Scatter that leaves n bytes on each rank.
func scatterOf(p participant, n int, b *bench) *reduceScatter {
	r := &reduceScatter{participant: p, send: make([]byte, n*p.ranks), dtype: b.dtype, op: b.op}
	if b.inPlace {
		r.recv = r.send[p.rank*n:][:n:n]
	} else {
		r.recv = make([]byte, n)
	}
	all := b.tables(p.ranks)
	owner := p.rank
	r.own = all[owner]
	if b.ring != nil { // from the right neighbour on
		all, owner = append(all[p.rank+1:], all[:p.rank+1]...), p.ranks-1
	}
	r.sum = folded(all, p.nodes(), b.dtype, b.op, owner)
	return r
}

func (r *reduceScatter) fill(iter int) { fill(r.send, r.own, iter) }

func (r *reduceScatter) run() error {
	return r.group.ReduceScatter(r.send, r.recv, r.dtype, r.op, factor)
}

func (r *reduceScatter) check(iter int) uint64 {
	return wrong(r.recv, r.sum, iter, r.rank*len(r.recv))
}

func (r *reduceScatter) copies() (n int) {
	for i := range r.ranks {
		n += copy(r.recv, r.send[i*len(r.recv):])
	}
	return n
}

// allreduce reduces the tables of all ranks and gives every rank all of the result.
type allreduce struct {
	participant
	send, recv []byte
	dtype      reduce.Type
	op         reduce.Op
	own        []byte   // table
	sums       [][]byte // tables, by owner: parts of the result were summed by any of them
}

// allreduceOf returns an Allreduce of n bytes for each rank.
func allreduceOf(p participant, n int, b *bench) *allreduce {
	a := &allreduce{participant: p, send: make([]byte, n*p.ranks), dtype: b.dtype, op: b.op}
	if a.recv = a.send; !b.inPlace {
		a.recv = make([]byte, n*p.ranks)
	}
	all := b.tables(p.ranks)
	a.own = all[p.rank]
	if p.nodes() != nil {
		a.sums = append(a.sums, folded(all, nil, b.dtype, b.op, len(all)-1)) // tiny ones are summed in rank order
	}
	for owner := range all {
		if b.dtype.OwnLast() || owner == 0 {
			a.sums = append(a.sums, folded(all, p.nodes(), b.dtype, b.op, owner))
		}
	}
	return a
}

func (a *allreduce) fill(iter int) { fill(a.send, a.own, iter) }

func (a *allreduce) run() error { return a.group.Allreduce(a.send, a.recv, a.dtype, a.op, factor) }

func (a *allreduce) check(iter int) uint64 { return wrongOfAny(a.recv, a.sums, iter) }

func (a *allreduce) copies() int { return copy(a.recv, a.send) }

// both is an Allgather and a Reduce-Scatter in flight together.
type both struct {
	*allgather
	*reduceScatter
}

func (b both) fill(iter int) {
	b.allgather.fill(iter)
	b.reduceScatter.fill(iter)
}

// run has a group start both; a ring is called twice at once.
func (b both) run() error {
	if g, ok := b.allgather.group.(lanes); ok {
		return g.together(b.allgather, b.reduceScatter)
	}
	gathered := make(chan error, 1)
	go func() { gathered <- b.allgather.run() }()
	return errors.Join(b.reduceScatter.run(), <-gathered)
}

func (b both) check(iter int) uint64 { return b.allgather.check(iter) + b.reduceScatter.check(iter) }

func (b both) copies() int { return b.allgather.copies() + b.reduceScatter.copies() }
