// Package direct is Reduce-Scatter without help from the network: every rank
// streams each shard to the rank that owns it, and the owner sums. It is the
// algorithm that ranks agree on when no aggregation node is configured, and
// what they fall back to. Sums run in rank order, so that the same inputs give
// the same bits whatever the timing.
//
// Like internal/core it has no clock, goroutine or lock: Comm.Work moves what
// can be moved and returns.
package direct

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/fabric"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// MaxInFlight is how many operations may be posted and not done.
const MaxInFlight = 32

// burst is how much of a shard goes to one owner before the next has its turn. All
// owners are kept busy, and what is folded at once stays in the cache.
const burst = 128 << 10

// Op is a Reduce-Scatter of Count elements a shard.
type Op struct {
	// Send holds size shards of Count elements, Recv one. Recv may be this
	// rank's shard of Send.
	Send, Recv []byte
	Count      int
	Type       reduce.Type
	Reduction  reduce.Op
	Factor     float64
}

func (o *Op) shard(rank int) []byte {
	n := o.Count * o.Type.Size()
	return o.Send[rank*n : (rank+1)*n]
}

func (o *Op) header(seq uint32) wire.Stream {
	h := wire.Stream{
		Type: uint8(o.Type), Op: uint8(o.Reduction), Seq: seq,
		Bytes: uint64(o.Count) * uint64(o.Type.Size()), //nolint:gosec // not negative
	}
	if o.Reduction == reduce.PremulSum {
		h.Factor = o.Factor
	}
	return h
}

func describe(h *wire.Stream) string {
	return fmt.Sprintf("reduce-scatter (%v of %v, %d bytes a shard, factor %v)",
		reduce.Op(h.Op), reduce.Type(h.Type), h.Bytes, h.Factor)
}

// MismatchError says that another rank called something else.
type MismatchError struct {
	Rank, Peer   int
	Mine, Theirs string
}

// Error names the ranks and what each of them called.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("ranks disagree: rank %d called %s, rank %d %s", e.Rank, e.Mine, e.Peer, e.Theirs)
}

// BrokenError says that the stream of a rank is lost.
type BrokenError struct {
	Rank int
	Err  error
}

// Error names the rank and the cause.
func (e *BrokenError) Error() string { return fmt.Sprintf("stream of rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

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
	err        error
}

// op is an operation in flight.
type op struct {
	Op
	seq    uint32
	folded int // bytes of the shard that are summed
	sent   int // owners that have all of theirs
	summed bool
}

// outbound is where this rank is in what it streams to an owner.
type outbound struct {
	seq uint32 // operation
	at  int    // bytes of header, shard and padding sent
}

// New returns the state of a rank.
func New(rank, size int, s fabric.Streams) *Comm {
	return &Comm{
		rank: rank, size: size, streams: s,
		out: make([]outbound, size), in: make([]bool, size), srcs: make([][]byte, size),
	}
}

// Room returns how many operations may be posted now.
func (c *Comm) Room() int { return MaxInFlight - len(c.ops) }

// Post begins an operation and returns its number. The caller has checked the
// arguments and that there is room.
func (c *Comm) Post(o Op) uint32 {
	p := new(op)
	if n := len(c.spare); n > 0 {
		p, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	*p = op{Op: o, seq: c.posted}
	c.posted++
	c.ops = append(c.ops, p)
	return p.seq
}

// Work sends and sums what it can. It returns whether that was anything. Err says
// whether it can go on.
func (c *Comm) Work() bool {
	if c.err != nil || len(c.ops) == 0 {
		return false
	}
	busy := false
	for d := 1; d < c.size; d++ {
		busy = c.sendTo((c.rank+d)%c.size) || busy
	}
	return c.fold() || busy
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
		b := c.piece(p, owner, o.at)
		if len(b) == 0 {
			p.sent++
			o.seq++
			o.at = 0
			return true
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

// piece returns what follows at position at of header, shard and padding; it is empty at the end.
func (c *Comm) piece(p *op, owner, at int) []byte {
	if at < wire.StreamAlign {
		h := p.header(p.seq)
		clear(c.head[:])
		h.Put(c.head[:])
		return c.head[at:]
	}
	at -= wire.StreamAlign
	shard := p.shard(owner)
	if at < len(shard) {
		return shard[at:]
	}
	clear(c.head[:])
	return c.head[:padded(len(shard))-at]
}

func padded(n int) int { return (n + wire.StreamAlign - 1) &^ (wire.StreamAlign - 1) }

// fold sums what has arrived from all ranks of the oldest operation that is
// not summed yet.
func (c *Comm) fold() bool {
	p := c.unsummed()
	if p == nil || !c.headers(p) {
		return false
	}
	size := p.Count * p.Type.Size()
	if p.folded < size {
		n := c.arrived(p, min(size-p.folded, burst))
		if n == 0 {
			return false
		}
		reduce.FoldPart(p.Recv[p.folded:p.folded+n], c.srcs, p.Type, p.Reduction, p.Factor, size)
		c.consume(n)
		p.folded += n
		if p.folded < size {
			return true
		}
	}
	if !c.padding(padded(size) - size) {
		return false
	}
	p.summed = true
	for r := range c.in {
		c.in[r] = false
	}
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
		if mine := p.header(p.seq); !mine.Equal(&theirs) {
			c.err = &MismatchError{c.rank, r, describe(&mine), describe(&theirs)}
			return false
		}
		c.in[r] = true
	}
	return all
}

// arrived points srcs at the next bytes of every rank's shard, in rank order,
// and returns how many all of them have: up to n, whole elements.
func (c *Comm) arrived(p *op, n int) int {
	for r := range c.size {
		if r == c.rank {
			c.srcs[r] = p.shard(r)[p.folded:]
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
	return n
}

// padding takes what follows the shards, once all of it is there.
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
func (c *Comm) NextDone() (seq uint32, ok bool) {
	if len(c.ops) == 0 || !c.ops[0].summed || c.ops[0].sent < c.size-1 {
		return 0, false
	}
	p := c.ops[0]
	copy(c.ops, c.ops[1:])
	c.ops = c.ops[:len(c.ops)-1]
	seq = p.seq
	*p = op{}
	c.spare = append(c.spare, p)
	return seq, true
}
