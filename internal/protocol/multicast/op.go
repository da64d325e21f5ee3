package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// opState says what this rank knows of an operation.
type opState uint8

const (
	free     opState = iota
	early            // other ranks have begun it, this one has not posted it
	active           // posted, not done
	retained         // done; kept because the right neighbour may still need it
)

// op is the state of one operation.
type op struct {
	state opState
	seq   uint32
	shape shape
	moved Time // when something of it last happened, see Waiting
	road
	memory

	// Barrier.
	entered  bool   // this rank has sent round 0
	heard    uint32 // rounds whose message has arrived, a bit each
	nextSend int    // next round to send
	open     bool   // barrier complete, or none needed

	// What other ranks have called, see compare.go.
	calls    []callOf // messages that came before Post
	compared bool     // the right neighbour was told what this rank has called
	disputed bool     // a datagram has told of another call

	// Sending.
	turn bool // this rank's turn in its chain has come
	next int  // next chunk of the own shard to multicast

	// Receiving.
	current int  // shard of the last chunk that arrived
	since   Time // when the first chunk arrived, to measure the rate

	// Credit: see credit.go.
	window   int      // chunks that one chain may have under way, 0: no limit
	step     uint32   // chunks that a message covers
	floor    int      // what a root may have under way at the least, in chunks
	progress progress // of the own shard

	// Repair.
	repairs    int  // chunks that the right neighbour wants and this rank has
	repairFrom int  // the first of them is not before this one
	cutoff     Time // moment of the next cutoff, 0: none
	tries      uint
	alarm      Time // when a cutoff passed of which it is not known yet whether rightly, 0: none
	silent     bool // a cutoff has passed: the time taken may say nothing about the rate
	repaired   bool // chunks came by repair: it says nothing
	// guessed says that chunks were asked for after a silence, here or further
	// right; spurious, that some were asked for that only came late.
	guessed, spurious bool

	rightDone bool // the right neighbour has every chunk
	doneSent  bool // the left neighbour was told that this rank has every chunk
}

// seen says what has arrived of a shard.
type seen struct {
	hi    uint32 // first chunk above all that have arrived
	count uint32 // chunks
}

// callOf remembers a message that says what a rank has called.
type callOf struct {
	rank int
	m    wire.Control
}

// blank makes the slot belong to operation seq and nothing known of it.
func (p *op) blank(seq uint32) {
	*p = op{seq: seq, state: early, calls: p.calls[:0]}
}

// known reports whether the slot has a geometry: it was posted, or a chunk of it came early.
func (p *op) known() bool { return p.shape.chunks > 0 }

// setShape gives an operation the memory that its shape takes.
func (c *Comm) setShape(p *op, s shape) {
	p.shape = s
	n := s.shards * s.chunks
	p.memory = c.pool.take(n)
	p.have.Reset(n)
	p.asked.Reset(n)
	p.wanted.Reset(n)
	p.guess.Reset(n)
	p.gaps = p.gaps[:0]
	p.seen = zeroed(p.seen, s.shards)
}

// forget drops what is known of an operation's chunks.
func (c *Comm) forget(p *op) {
	if p.known() {
		c.dropWishes(p)
		c.pool.put(p.have.Len(), &p.memory)
	}
}

// mismatch reports whether two ranks' ideas of an operation differ. Datagrams
// carry the low 32 bits of the size, which is all that an early one tells.
func (s *shape) mismatch(o *shape) bool {
	return s.coll != o.coll || s.root != o.root || uint32(s.bytes) != uint32(o.bytes) //nolint:gosec // meant
}

// post turns a free or early slot into an active operation.
func (p *op) post(c *Comm, seq uint32, s shape, r road) {
	if p.state != early || p.seq != seq {
		p.blank(seq)
	}
	if p.known() && (p.arena != r.arena || p.shape.mismatch(&s)) {
		// What was begun here is not what is posted: nothing of it counts but what messages said.
		calls := p.calls
		c.forget(p)
		p.blank(seq)
		p.calls, p.disputed = calls, true
	}
	if !p.known() {
		c.setShape(p, s)
	}
	p.state, p.moved = active, c.now
	p.road = r
	p.shape = s
	if !c.cfg.Lossless && !r.eager {
		c.postCredit(p)
		p.reached = zeroed(p.reached, c.chains.M)
	}
	if !p.barrier {
		p.open = true
	}
	if own := s.shard(c.cfg.Rank); own >= 0 {
		for k := 0; k < s.chunks; k++ {
			p.have.Set(own*s.chunks + k)
		}
		p.seen[own] = seen{uint32(s.chunks), uint32(s.chunks)} //nolint:gosec // Post bounds it
		if c.cfg.Size == 1 {
			p.next = s.chunks
		}
	} else {
		p.next = s.chunks
	}
	for _, r := range p.calls {
		c.call(p, r.rank, &r.m)
	}
	if p.disputed && p.eager {
		c.compare(p)
	}
	c.announce(p)
	c.arm(p)
}

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// full reports whether every chunk has arrived.
func (p *op) full() bool { return p.have.Full() }

// sent reports whether the own shard has been multicast.
func (p *op) sent() bool { return p.next == p.shape.chunks }

// slot returns the state of operation seq for something that arrived, or nil
// if this rank keeps none: it is stale, or further ahead than a correct rank gets.
func (c *Comm) slot(seq uint32) *op {
	if seq-c.oldest >= slots {
		return nil
	}
	p := &c.ring[seq%slots]
	if p.state == free || p.seq != seq {
		p.blank(seq)
	}
	return p
}

// activeOps calls f for the operations posted and not done, in posting order,
// until it returns false.
func (c *Comm) activeOps(f func(p *op) bool) {
	for seq := c.first; seq != c.posted; seq++ {
		if p := &c.ring[seq%slots]; p.state == active && !f(p) {
			return
		}
	}
}

// advance does what has become possible: enter barriers, complete operations,
// release what nobody needs any more. It is called after every event that may
// have made something possible.
func (c *Comm) advance() {
	if c.err != nil {
		return
	}
	pending := false // the result of an older eager operation is still in the arena, or on its way there
	late := 0        // older large operations that have not been received here
	for seq := c.first; seq != c.posted; seq++ {
		p := &c.ring[seq%slots]
		if p.state != active {
			continue
		}
		// With one older operation still under way the barrier hides behind its
		// data. With more, their windows would add up in this rank's queue.
		if p.barrier && !p.entered && !pending && late < 2 {
			p.entered = true
			c.barrier(p)
		}
		if p.open && p.full() && p.sent() && c.finishHandshake(p) {
			c.learn(p)
			c.complete(p, nil)
			continue
		}
		pending = pending || p.eager
		if !p.eager && !p.full() {
			late++
		}
	}
	for c.first != c.posted && c.ring[c.first%slots].state != active {
		c.first++
	}
	c.release()
}

// finishHandshake plays the final handshake of an operation that this rank has
// completely received, and reports whether it is over.
func (c *Comm) finishHandshake(p *op) bool {
	if !p.handshake {
		return true
	}
	if !p.doneSent {
		p.doneSent = true
		c.send(c.topo.Left(), wire.Control{Kind: wire.Done, Collective: p.shape.coll, Seq: p.seq})
	}
	return p.rightDone
}

// complete hands an operation back to the caller.
func (c *Comm) complete(p *op, err error) {
	c.done.push(Completion{Seq: p.seq, Err: err, Arena: p.arena})
	p.state = retained
	p.cutoff = 0
	c.inFlight--
	if err == nil {
		c.stats.Done++
	}
}

// release frees finished operations in order. An eager one is kept until a
// later barrier has shown that everybody has it; on a lossless fabric they are
// kept for a while to be compared with what a slower neighbour announces.
func (c *Comm) release() {
	for c.oldest != c.first {
		p := &c.ring[c.oldest%slots]
		if p.eager && !before(p.seq, c.opened) || c.cfg.Lossless && c.posted-c.oldest <= epochOps {
			return
		}
		c.forget(p)
		p.state = free
		c.oldest++
	}
}

// before reports whether operation a was posted before b.
func before(a, b uint32) bool { return int32(a-b) < 0 } //nolint:gosec // sequence arithmetic
