package multicast

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// Phase says what an operation waits for.
type Phase uint8

// The phases, in the order in which an operation passes them.
const (
	PhaseBarrier   Phase = iota // messages of its barrier: a rank has not posted it, or does not reach this one
	PhaseChunks                 // chunks of other ranks
	PhaseTurn                   // the root before this rank in its chain, to pass on the turn to send
	PhaseCredit                 // room to send the own shard, which the slowest receiver limits
	PhaseReads                  // the end of its reads from the left neighbour's memory; all other chunks are here
	PhaseHandshake              // the message of the right neighbour that it has every chunk
)

// Waiting says what the oldest operation in flight waits for, and since when.
type Waiting struct {
	Seq   uint32
	Op    Op
	Phase Phase
	// Moved is when something of the operation last happened: it was posted, a message of its
	// barrier came, a chunk was sent, came or was repaired, or credit, turn or handshake came.
	Moved Time
	// Ranks are the ranks that it waits for next, for messages or chunks, ascending. None: it waits for room in the fabric
	// of this rank.
	Ranks   []int
	Missing int // chunks that have not arrived
}

// Called names the operation and its number: of a step, the call's.
func (w *Waiting) Called() collective.Text {
	if call := &w.Op.Call; !call.IsNone() {
		// its root is a rank of the group
		return collective.Text{Words: fmt.Sprintf("%v, number %d", opOfCall(call), call.Number)}
	}
	return collective.Textf("%v, number %d", w.Op.text(), w.Seq)
}

// Why says in words why the operation waits.
func (w *Waiting) Why() string {
	switch w.Phase {
	case PhaseBarrier:
		return "it has not begun there, or waits there for another rank"
	case PhaseChunks:
		return fmt.Sprintf("%d chunk(s) have not come", w.Missing)
	case PhaseTurn:
		return "the turn to send has not come"
	case PhaseCredit:
		return "no room to send"
	case PhaseReads:
		return "reads from its memory, which this rank has begun, have not ended"
	default:
		return "the final handshake has not come"
	}
}

// Waiting returns what the oldest operation in flight waits for, and false if none is in flight. It allocates: it is
// for monitoring, not for the path of a chunk.
func (c *Comm) Waiting() (Waiting, bool) {
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		w := Waiting{Seq: p.seq, Op: p.called(), Moved: p.moved, Missing: p.receiver.missing()}
		w.Phase, w.Ranks = c.awaited(p)
		slices.Sort(w.Ranks)
		return w, true
	}
	return Waiting{}, false
}

// awaited returns which ranks an operation waits for next, and for what.
func (c *Comm) awaited(p *op) (Phase, []int) {
	if !p.barrier.open {
		return PhaseBarrier, p.barrier.awaited(&p.layout)
	}
	if roots := p.awaitedRoots(); len(roots) > 0 {
		return PhaseChunks, roots
	}
	switch {
	case p.sender.done(&p.layout) && p.pulls.reading > 0:
		return PhaseReads, []int{c.topo.Left()}
	case p.sender.done(&p.layout):
		return PhaseHandshake, []int{c.topo.Right()}
	case !p.sender.turn && !p.sender.leads:
		return PhaseTurn, []int{c.cfg.Rank - 1} // the head of a chain leads
	}
	return PhaseCredit, p.credit.slowest(&p.layout)
}

// awaitedRoots returns the roots that send next: in each chain the first with chunks missing here, unless this rank is
// before it and has not sent.
func (p *op) awaitedRoots() (roots []int) {
	chains := &p.mode.chains
	for ch := range chains.M {
		end := chains.Head(ch + 1)
		if !p.sender.done(&p.layout) && ch == chains.Of(p.own) {
			end = p.own
		}
		roots = append(roots, p.receiver.incomplete(&p.layout, chains.Head(ch), end, 1)...)
	}
	return roots
}
