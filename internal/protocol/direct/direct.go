// Package direct is Reduce-Scatter without help from the network: every rank
// streams each shard to the rank that owns it, and the owner sums. A Reduce is the
// same with one owner; the other ranks are streamed headers alone. It is the
// algorithm that ranks agree on when no aggregation node is configured, and
// what they fall back to. Sums run in the order of reduce.InOrder, so that the same inputs give
// the same bits whatever the timing, and whatever the path.
//
// Like internal/protocol/multicast it has no clock, goroutine or lock: Comm.Work moves what
// can be moved and returns.
package direct

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// MaxInFlight is how many operations may be posted and not done.
const MaxInFlight = 32

// burst is how much of a shard goes to one owner before the next has its turn. All
// owners are kept busy, and what is folded at once stays in the cache.
const burst = 128 << 10

// Comm is one rank's side of the direct Reduce-Scatter.
type Comm struct {
	rank, size int
	streams    fabric.Streams
	ops        []*op // in posting order, oldest first
	spare      []*op
	posted     uint32
	out        []outbound
	in         []bool // a rank's header of the oldest unsummed operation has come
	srcs       [][]byte
	head       [wire.StreamAlign]byte
	news       Announcement
	err        error
}

// outbound is where this rank is in what it streams to an owner.
type outbound struct {
	seq  uint32 // operation
	part int    // 0: its header; from 1: the parts of the shard
	at   int    // bytes of that, and of the padding behind it, that are sent
}

// Announcement is news from rank 0: operations from number From on go through
// the switch, which all ranks have joined under Epoch. Epoch 0: there is none.
type Announcement struct{ From, Epoch uint32 }

// New returns the state of a rank.
func New(rank, size int, s fabric.Streams) *Comm {
	return &Comm{
		rank: rank, size: size, streams: s,
		out: make([]outbound, size), in: make([]bool, size), srcs: make([][]byte, size),
	}
}

// Room returns how many operations may be posted now.
func (c *Comm) Room() int { return MaxInFlight - len(c.ops) }

// Post begins an operation. All ranks give it the same number, greater than that of
// the one before. need says, by rank, which parts of its shard each owner still
// lacks, sorted, apart from each other, in whole elements, and is the same on all ranks; nil: all of
// every shard. The caller has checked the arguments and that there is room.
func (c *Comm) Post(o Op, number uint32, need [][]Range) {
	p := new(op)
	if n := len(c.spare); n > 0 {
		p, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	*p = op{Op: o, seq: c.posted, number: number, need: need}
	if c.rank == 0 {
		p.news = c.news
	}
	c.posted++
	c.ops = append(c.ops, p)
}

// Announce makes rank 0 tell the others, with every operation posted from now on.
func (c *Comm) Announce(a Announcement) { c.news = a }

// Announced returns the latest news from rank 0. Whoever has completed an
// operation knows what rank 0 announced before it posted that one.
func (c *Comm) Announced() Announcement { return c.news }

// Work sums what it can and, unless others go first, sends. It returns whether
// that was anything. Err says whether it can go on.
func (c *Comm) Work(send bool) bool {
	if c.err != nil || len(c.ops) == 0 {
		return false
	}
	busy := false
	for d := 1; send && d < c.size; d++ {
		busy = c.sendTo((c.rank+d)%c.size) || busy
	}
	return c.fold() || busy
}

// Oldest says of the oldest operation in flight whether anything was summed,
// whether all was (or sent, if nothing is to be summed here), and whether this rank still has something of it to send.
func (c *Comm) Oldest() (moving, whole, sending bool) {
	if len(c.ops) == 0 {
		return false, false, false
	}
	p := c.ops[0]
	sending = p.sent < c.size-1
	return p.folded > 0 || p.summing > 0, p.summed && (!sending || p.To.Includes(c.rank)), sending
}

// Err returns why the lane cannot go on, or nil.
func (c *Comm) Err() error { return c.err }

// Check looks for broken streams. It is for when nothing else can be done.
func (c *Comm) Check() {
	for r := range c.size {
		if r == c.rank || c.err != nil {
			continue
		}
		if err := c.streams.Err(r); err != nil {
			c.err = &BrokenError{r, err}
		}
	}
}

// sendTo streams up to a burst to an owner.
func (c *Comm) sendTo(owner int) bool {
	o := &c.out[owner]
	if o.seq == c.posted {
		return false
	}
	p := c.ops[o.seq-c.ops[0].seq]
	busy := false
	for room := burst; room > 0; {
		b, ok := c.piece(p, owner, o.part, o.at)
		if !ok {
			p.sent++
			*o = outbound{seq: o.seq + 1}
			return true
		}
		if len(b) == 0 {
			o.part++
			o.at = 0
			continue
		}
		n := c.streams.Send(owner, b[:min(len(b), room)])
		if n == 0 {
			return busy
		}
		o.at += n
		room -= n
		busy = true
	}
	return busy
}

// piece returns what follows position at of the header or a part of the shard;
// it is empty at the end of that. There is none behind the last part.
func (c *Comm) piece(p *op, owner, part, at int) (b []byte, ok bool) {
	if part == 0 {
		h := p.header()
		clear(c.head[:])
		h.Put(c.head[:])
		return c.head[at:], true
	}
	r, ok := p.part(owner, part-1)
	if !ok {
		return nil, false
	}
	if size := r.To - r.From; at >= size {
		clear(c.head[:])
		return c.head[:padded(size)-at], true
	}
	return p.Shard(owner)[r.From+at : r.To], true
}

func padded(n int) int { return (n + wire.StreamAlign - 1) &^ (wire.StreamAlign - 1) }

// fold sums what has arrived from all ranks of the oldest operation that is
// not summed yet.
func (c *Comm) fold() bool {
	p := c.unsummed()
	if p == nil || !c.headers(p) {
		return false
	}
	part, ok := p.part(c.rank, p.summing)
	if !ok {
		p.summed = true
		clear(c.in)
		return true
	}
	size := part.To - part.From
	if p.folded < size {
		at := part.From + p.folded
		n := c.arrived(p, at, min(size-p.folded, burst))
		if n == 0 {
			return false
		}
		reduce.FoldPart(p.Recv[at:at+n], c.srcs, p.Type, p.Reduction, p.Factor, p.Bytes())
		c.consume(n)
		p.folded += n
		if p.folded < size {
			return true
		}
	}
	if !c.padding(padded(size) - size) {
		return false
	}
	p.summing++
	p.folded = 0
	return true
}

// unsummed returns the oldest operation that is not summed yet, or nil.
func (c *Comm) unsummed() *op {
	for _, p := range c.ops {
		if !p.summed {
			return p
		}
	}
	return nil
}

// headers takes the headers of an operation, compares them with what this rank
// called, and reports whether all have come.
func (c *Comm) headers(p *op) bool {
	all := true
	for r := range c.size {
		if r == c.rank || c.in[r] {
			continue
		}
		b := c.streams.Peek(r, wire.StreamAlign)
		if len(b) < wire.StreamAlign {
			all = false
			continue
		}
		var theirs wire.Stream
		if err := theirs.Get(b); err != nil {
			c.err = &BrokenError{r, err}
			return false
		}
		c.streams.Consume(r, wire.StreamAlign)
		if mine := p.header(); !mine.Equal(&theirs) {
			c.err = &MismatchError{c.rank, r, describe(&mine), describe(&theirs)}
			return false
		}
		c.in[r] = true
		if r == 0 && theirs.Epoch != 0 {
			c.news = Announcement{theirs.From, theirs.Epoch}
		}
	}
	return all
}

// arrived points srcs at the bytes of every rank's shard from position at, in the
// order of the sum, and returns how many all of them have: up to n, whole elements.
func (c *Comm) arrived(p *op, at, n int) int {
	for r := range c.size {
		if r == c.rank {
			c.srcs[r] = p.Shard(r)[at:]
			continue
		}
		c.srcs[r] = c.streams.Peek(r, n)
		if len(c.srcs[r]) < n {
			n = len(c.srcs[r]) &^ (wire.StreamAlign - 1)
		}
		if n == 0 {
			return 0
		}
	}
	for r := range c.srcs {
		c.srcs[r] = c.srcs[r][:n]
	}
	reduce.InOrder(c.srcs, c.rank, p.Type)
	return n
}

// padding takes what follows a part of the shards, once all of it is there.
func (c *Comm) padding(n int) bool {
	for r := range c.size {
		if r != c.rank && len(c.streams.Peek(r, n)) < n {
			return false
		}
	}
	c.consume(n)
	return true
}

func (c *Comm) consume(n int) {
	for r := range c.size {
		if r != c.rank && n > 0 {
			c.streams.Consume(r, n)
		}
	}
}

// NextDone removes the oldest operation if it is sent and summed, and returns
// its number. Operations are done in posting order.
func (c *Comm) NextDone() (number uint32, ok bool) {
	if len(c.ops) == 0 || !c.ops[0].summed || c.ops[0].sent < c.size-1 {
		return 0, false
	}
	p := c.ops[0]
	copy(c.ops, c.ops[1:])
	c.ops = c.ops[:len(c.ops)-1]
	number = p.number
	*p = op{}
	c.spare = append(c.spare, p)
	return number, true
}

// InFlight returns how many operations are posted and not done.
func (c *Comm) InFlight() int { return len(c.ops) }
