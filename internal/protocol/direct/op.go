package direct

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Op is an operation with its buffers.
type Op struct {
	collective.Op
	// Send holds a shard of Count elements for each rank that To includes, Recv one
	// if this rank is such a one. Recv may be this rank's shard of Send.
	Send, Recv []byte
	// Shards, if not nil, returns an owner's shard of an input that is not in one piece. Send is
	// not looked at then.
	Shards func(owner int) []byte
	// Rows, if not 0, says that each owner has so many shards of Count elements: Recv holds them one behind
	// the other, and Row, in place of Send and Shards, returns one of an input. No switch does that.
	Rows int
	Row  func(owner, row int) []byte
	// Of says which ranks contribute: all or, in a Reduce to another rank, one alone. The other rank then gets that
	// contribution as it is.
	Of wire.Target
}

// Shard returns what of Send an owner gets; it is empty if To does not include it.
func (o *Op) Shard(owner int) []byte {
	n := o.Bytes()
	switch _, one := o.To.Root(); {
	case !o.To.Includes(owner):
		return nil
	case o.Shards != nil:
		return o.Shards(owner)
	case one:
		return o.Send[:n]
	}
	return o.Send[owner*n : (owner+1)*n]
}

// from returns what an owner gets from a position of its result on, up to the end of a row.
func (o *Op) from(owner, at int) []byte {
	if o.Rows == 0 {
		return o.Shard(owner)[at:]
	}
	n := o.Bytes()
	return o.Row(owner, at/n)[at%n : n]
}

// result returns the length of an owner's result.
func (o *Op) result() int { return o.Bytes() * max(1, o.Rows) }

// op is an operation in flight.
type op struct {
	Op
	seq     uint32 // counts what this Comm has posted
	number  uint32 // of all ranks
	need    [][]collective.Range
	news    Announcement
	summing int // part of the own shard
	folded  int // bytes of that part that are summed
	sent    int // owners that have all of theirs
	summed  bool
}

// part returns the i-th part of its result that an owner needs: each row is one.
func (p *op) part(owner, i int) (collective.Range, bool) {
	if p.need == nil {
		n := p.Bytes()
		return collective.Range{From: i * n, To: (i + 1) * n}, i < max(1, p.Rows) && n > 0 && p.To.Includes(owner)
	}
	if i >= len(p.need[owner]) {
		return collective.Range{}, false
	}
	return p.need[owner][i], true
}

// passes returns the i-th part, as part does, of the shard that a rank streams to an owner.
func (p *op) passes(from, owner, i int) (collective.Range, bool) {
	if !p.Of.Includes(from) {
		return collective.Range{}, false
	}
	return p.part(owner, i)
}

func (p *op) header() wire.Stream {
	h := wire.Stream{
		Type: uint8(p.Type), Op: uint8(p.Reduction), Of: p.Of, Seq: p.number, To: p.To, From: p.news.From,
		Epoch: p.news.Epoch,
		Bytes: uint64(p.result()), Call: p.Call,
	}
	if p.Reduction == reduce.PremulSum {
		h.Factor = p.Factor
	}
	return h
}

// describeBoth names the calls of two ranks or, if these are the same, the steps that their headers belong to.
func describeBoth(mine, theirs *wire.Stream) (what [2]collective.Text, called bool) {
	if a, b := describe(whole(mine)).String(), describe(whole(theirs)).String(); !mine.Call.IsNone() && a != b {
		return [2]collective.Text{{Words: a}, {Words: b}}, true // its root is a rank of the group
	}
	return [2]collective.Text{describe(mine), describe(theirs)}, false
}

// Called names the call that the operation is a step of, if there is one.
func (o *Op) Called() string {
	if o.Call.IsNone() {
		return ""
	}
	return describe(whole(&wire.Stream{Type: uint8(o.Type), Call: o.Call})).String()
}

// whole returns the header that the call would have if it were one operation, without steps.
func whole(h *wire.Stream) *wire.Stream {
	w := &wire.Stream{Type: h.Type, Op: h.Call.Op, Seq: h.Call.Number, Bytes: h.Call.Bytes, Factor: h.Call.Factor}
	if h.Call.Collective == wire.Reduce {
		w.To = wire.ToRank(int(h.Call.Root))
	}
	return w
}

func describe(h *wire.Stream) collective.Text {
	to := collective.TargetText(h.To)
	if giver, one := h.Of.Root(); one {
		return collective.Textf("%v of what rank %d alone gives, number %d (%d bytes)", to, collective.Place(giver), h.Seq,
			h.Bytes)
	}
	return collective.Textf("%v number %d (%s, %d bytes a shard)", to, h.Seq,
		reduce.Words(reduce.Type(h.Type), reduce.Op(h.Op), h.Factor), h.Bytes)
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
