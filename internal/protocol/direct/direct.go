// Package direct is Reduce-Scatter without help from the network: every rank streams each shard to the rank that owns
// it, and the owner sums. A Reduce is the same with one owner; the other ranks are streamed headers alone. Ranks agree
// on this algorithm when no switch is configured, and fall back to it. Sums run in the order of reduce.InOrder, so that
// the same inputs give the same bits at any timing and on any path.
//
// Like internal/protocol/multicast it has no clock, socket, goroutine or lock. Its driver,
// internal/protocol/reducescatter, moves the bytes: out of NextChunk into the stream to a rank (Sent), and out of the
// stream from a rank, as many as it Wants, into Received and Sum.
//
// The words are in docs/reference/glossary.md.
package direct

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Burst is how many bytes of a shard go to one owner before the next has its turn, and are summed at once. All owners
// are kept busy, and the summed bytes stay in the cache.
const Burst = 128 << 10

// Comm is one rank's side of the direct Reduce-Scatter.
type Comm struct {
	rank, size int
	ops        []*op // in posting order, oldest first
	summing    int   // index of the oldest that is not summed
	spare      []*op
	posted     uint32
	out        []outbound
	in         []bool   // a rank's header of the oldest unsummed operation has come
	headers    int      // how many
	last       int      // rank that sent the last header of an operation
	least      int      // rank with the least data when the sum last waited for input
	srcs       [][]byte // what the streams of all ranks hold, as far as it was shown in this round
	common     int      // the least of what was shown, if short: fewer bytes than wanted
	short      bool
	head       [wire.StreamAlign]byte
	news       Announcement
	err        error
}

// outbound is how far this rank has come in its stream to an owner.
type outbound struct {
	seq  uint32 // operation
	part int    // 0: its header; from 1: the parts of the shard
	at   int    // bytes of that, and of the padding behind it, that are sent
}

// Announcement is news from rank 0: operations from number From on go through
// the switch, which all ranks have joined under Epoch. Epoch 0: there is none.
type Announcement struct{ From, Epoch uint32 }

// New returns the state of a rank.
func New(rank, size int) *Comm {
	return &Comm{
		rank: rank, size: size,
		out: make([]outbound, size), in: make([]bool, size), srcs: make([][]byte, size),
	}
}

// Post begins an operation. All ranks give it the same number, greater than the one before. need says, by rank, which
// parts of its shard each owner still lacks, sorted, apart from each other, in whole elements, and is the same on all
// ranks; nil: all of every shard. The caller has checked the arguments and that there is room.
func (c *Comm) Post(o Op, number uint32, need [][]collective.Range) {
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

// Announced returns the latest news from rank 0. A rank that has completed an operation knows all that rank 0 announced
// before rank 0 posted that operation.
func (c *Comm) Announced() Announcement { return c.news }

// Oldest returns how far the oldest operation in flight has come; nothing moves where there is none.
func (c *Comm) Oldest() (at collective.Progress) {
	if len(c.ops) == 0 {
		return at
	}
	p := c.ops[0]
	at.Moving, at.Sending = p.folded > 0 || p.summing > 0, p.sent < c.size-1
	at.Whole = p.summed && (!at.Sending || p.To.Includes(c.rank))
	return at
}

// Awaited returns the ranks that the oldest operation in flight waits for, ascending. Until all have begun it, these
// are the ranks that have not sent their header. Once this rank has summed its result, they are the ranks to which it
// still has to send.
func (c *Comm) Awaited() (begun bool, ranks []int) {
	if len(c.ops) == 0 {
		return false, nil
	}
	if begun = c.summing > 0 || c.headers == c.size-1; !begun {
		for r := range c.size {
			if r != c.rank && !c.in[r] {
				ranks = append(ranks, r)
			}
		}
		return false, ranks
	}
	if c.ops[0].summed {
		for r := range c.size {
			if r != c.rank && c.out[r].seq == c.ops[0].seq {
				ranks = append(ranks, r)
			}
		}
	}
	return true, ranks
}

// Latest returns the rank that was the last to begin an operation that all have begun, and the rank that had sent the
// least when the sum last waited for input.
func (c *Comm) Latest() (begun, input int) { return c.last, c.least }

// Err returns why the lane cannot go on, or nil.
func (c *Comm) Err() error { return c.err }

// Break ends everything: the stream of a rank is lost.
func (c *Comm) Break(rank int, err error) {
	if c.err == nil {
		c.err = &BrokenError{rank, err}
	}
}

// NextChunk returns the next bytes of the stream to a rank, or none if there is nothing to send. They are valid until
// the next call for any rank.
func (c *Comm) NextChunk(to int) []byte {
	o := &c.out[to]
	if c.err != nil || o.seq == c.posted {
		return nil
	}
	b, _ := c.piece(c.ops[o.seq-c.ops[0].seq], to, o.part, o.at)
	return b
}

// Sent says that the first n bytes, at least one, of what NextChunk has just returned are in the stream.
func (c *Comm) Sent(to, n int) {
	o := &c.out[to]
	p := c.ops[o.seq-c.ops[0].seq]
	for o.at += n; ; o.part, o.at = o.part+1, 0 {
		b, ok := c.piece(p, to, o.part, o.at)
		if !ok {
			p.sent++
			*o = outbound{seq: o.seq + 1}
			return
		}
		if len(b) > 0 {
			return
		}
	}
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
	r, ok := p.passes(c.rank, owner, part-1)
	if !ok {
		return nil, false
	}
	if size := r.To - r.From; at >= size {
		clear(c.head[:])
		return c.head[:padded(size)-at], true
	}
	return p.from(owner, r.From+at)[:r.To-r.From-at], true
}

func padded(n int) int { return (n + wire.StreamAlign - 1) &^ (wire.StreamAlign - 1) }

// Wants returns how many bytes of the stream from a rank, at most, are of use now.
func (c *Comm) Wants(from int) int {
	if c.err != nil || c.summing == len(c.ops) {
		return 0
	}
	if c.headers < c.size-1 {
		if c.in[from] {
			return 0
		}
		return wire.StreamAlign
	}
	switch p := c.ops[c.summing]; {
	case !p.Of.Includes(from):
		return 0
	case c.short:
		return c.common
	default:
		return c.wanted(p)
	}
}

// wanted returns how many bytes of all streams come next: of a part, or of the padding behind it.
func (c *Comm) wanted(p *op) int {
	part, ok := p.part(c.rank, p.summing)
	if !ok {
		return 0
	}
	if size := part.To - part.From; p.folded < size {
		return min(size-p.folded, Burst)
	}
	return padded(part.To-part.From) - (part.To - part.From)
}

// Received shows what a rank's stream holds, of what this one Wants, and returns how many bytes were
// taken. The others are looked at by Sum: until then they stay.
func (c *Comm) Received(from int, b []byte) (taken int) {
	if c.headers == c.size-1 {
		if n := c.Wants(from); len(b) < n {
			c.common, c.short, c.least = len(b)&^(wire.StreamAlign-1), true, from
		}
		c.srcs[from] = b
		return 0
	}
	if len(b) < wire.StreamAlign || !c.header(c.ops[c.summing], from, b) {
		return 0
	}
	c.in[from] = true
	if c.headers++; c.headers == c.size-1 {
		c.last = from
	}
	return wire.StreamAlign
}

// header compares another rank's call with the call of this rank.
func (c *Comm) header(p *op, from int, b []byte) bool {
	var theirs wire.Stream
	if err := theirs.Get(b); err != nil {
		c.Break(from, err)
		return false
	}
	if mine := p.header(); !mine.Equal(&theirs) {
		what, called := describeBoth(&mine, &theirs)
		c.err = &collective.MismatchError{Who: [2]int{c.rank, from}, What: what, Called: called}
		return false
	}
	if from == 0 && theirs.Epoch != 0 {
		c.news = Announcement{theirs.From, theirs.Epoch}
	}
	return true
}

// Gives reports whether another rank contributes to the operation that Sum has just taken bytes of. It is for after a
// Sum that returned taken > 0.
func (c *Comm) Gives(from int) bool { return c.ops[c.summing].Of.Includes(from) }

// Sum sums what all ranks have sent of the oldest operation that is not summed yet. It returns how many bytes
// of the streams of all others that contribute (Gives) were taken, and whether it came any further.
func (c *Comm) Sum() (taken int, further bool) {
	if c.err != nil || c.summing == len(c.ops) || c.headers < c.size-1 {
		return 0, false
	}
	p := c.ops[c.summing]
	part, ok := p.part(c.rank, p.summing)
	if !ok {
		p.summed = true
		c.summing++
		c.headers = 0
		clear(c.in)
		return 0, true
	}
	c.short = false
	defer clear(c.srcs)
	size := part.To - part.From
	if p.folded < size {
		at := part.From + p.folded
		n := c.arrived(p, at, c.wanted(p))
		if n == 0 {
			return 0, false
		}
		if giver, one := p.Of.Root(); one {
			copy(p.Recv[at:], c.srcs[giver])
		} else {
			reduce.FoldPart(p.Recv[at:at+n], c.srcs, p.Type, p.Reduction, p.Factor, p.result())
		}
		p.folded += n
		return n, true
	}
	n := c.wanted(p)
	for r := range c.size {
		if r != c.rank && p.Of.Includes(r) && len(c.srcs[r]) < n {
			return 0, false
		}
	}
	p.summing++
	p.folded = 0
	return n, true
}

// arrived points srcs at the bytes of every rank's shard from position at, in the
// order of the sum, and returns how many all of them have: up to n, whole elements. Where one rank alone
// contributes, it is at its place.
func (c *Comm) arrived(p *op, at, n int) int {
	if giver, one := p.Of.Root(); one {
		if b := c.srcs[giver]; len(b) < n {
			n = len(b) &^ (wire.StreamAlign - 1)
		}
		c.srcs[giver] = c.srcs[giver][:n]
		return n
	}
	c.srcs[c.rank] = p.from(c.rank, at)
	for _, b := range c.srcs {
		if len(b) < n {
			n = len(b) &^ (wire.StreamAlign - 1)
		}
	}
	for r := range c.srcs {
		c.srcs[r] = c.srcs[r][:n]
	}
	reduce.InOrder(c.srcs, c.rank, p.Type)
	return n
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
	c.summing--
	number = p.number
	*p = op{}
	c.spare = append(c.spare, p)
	return number, true
}

// InFlight returns how many operations are posted and not done.
func (c *Comm) InFlight() int { return len(c.ops) }
