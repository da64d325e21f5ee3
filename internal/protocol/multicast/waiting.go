package multicast

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Phase says what an operation waits for.
type Phase uint8

// The phases, in the order in which an operation passes them.
const (
	PhaseBarrier   Phase = iota // messages of its barrier: a rank has not posted it, or is not heard
	PhaseChunks                 // chunks of other ranks
	PhaseTurn                   // the root before this rank in its chain, to pass on the turn to send
	PhaseCredit                 // room to send the own shard, which the slowest receiver limits
	PhaseHandshake              // the word of the right neighbour that it has every chunk
)

// Waiting says what the oldest operation in flight waits for, and since when.
type Waiting struct {
	Seq   uint32
	Op    Op
	Phase Phase
	// Moved is when something of the operation last happened: it was posted, a message of its barrier
	// came, a chunk was sent, came or was repaired, or credit, turn or handshake came.
	Moved Time
	// Ranks are those whose messages or chunks it waits for next, ascending. None: it waits for
	// room in the fabric of this rank.
	Ranks   []int
	Missing int // chunks that have not arrived
}

// String says it for people.
func (w Waiting) String() string {
	s := fmt.Sprintf("operation %d (%v) waits for ", w.Seq, w.Op)
	switch w.Phase {
	case PhaseBarrier:
		s += "the barrier"
	case PhaseChunks:
		s += fmt.Sprintf("%d chunk(s)", w.Missing)
	case PhaseTurn:
		s += "its turn to send"
	case PhaseCredit:
		s += "room to send"
	case PhaseHandshake:
		s += "the final handshake"
	}
	if len(w.Ranks) == 0 {
		return s
	}
	names := make([]string, len(w.Ranks))
	for i, r := range w.Ranks {
		names[i] = fmt.Sprint(r)
	}
	if len(names) == 1 {
		return s + " of rank " + names[0]
	}
	return s + " of ranks " + strings.Join(names, ", ")
}

// Waiting returns what the oldest operation in flight waits for, and false if none is in flight. It
// allocates: it is for who watches, not for the path of a chunk.
func (c *Comm) Waiting() (w Waiting, ok bool) {
	c.activeOps(func(p *op) bool {
		w, ok = Waiting{Seq: p.seq, Op: p.shape.op(), Moved: p.moved, Missing: p.have.Len() - p.have.Count()}, true
		w.Phase, w.Ranks = c.awaits(p)
		slices.Sort(w.Ranks)
		return false
	})
	return w, ok
}

// awaits returns which ranks an operation waits for next, and for what.
func (c *Comm) awaits(p *op) (Phase, []int) {
	if !p.open {
		var ranks []int
		for k := range c.topo.Rounds() {
			if p.heard&(1<<k) == 0 {
				ranks = append(ranks, c.topo.From(k))
			}
		}
		return PhaseBarrier, ranks
	}
	if ranks := c.awaitedRoots(p); len(ranks) > 0 {
		return PhaseChunks, ranks
	}
	switch {
	case !p.sent() && !c.cfg.Lossless && !p.eager && !p.turn && !c.isHead(p):
		return PhaseTurn, []int{c.topo.Left()}
	case !p.sent():
		return PhaseCredit, c.slowest(p)
	}
	return PhaseHandshake, []int{c.topo.Right()}
}

// awaitedRoots returns the roots whose chunks are to come next: where roots take turns, the first of
// each chain, unless this rank is before it and has not sent.
func (c *Comm) awaitedRoots(p *op) (ranks []int) {
	if p.eager || c.cfg.Lossless || p.shape.coll == wire.Broadcast {
		return c.incomplete(p, 0, p.shape.shards, p.shape.shards)
	}
	for ch := range c.chains.M {
		end := c.chains.Head(ch + 1)
		if ch == c.chains.Of(c.cfg.Rank) && !p.sent() {
			end = c.cfg.Rank
		}
		ranks = append(ranks, c.incomplete(p, c.chains.Head(ch), end, 1)...)
	}
	return ranks
}

// incomplete returns the roots of the first shards in [from, to) that have not arrived, so many at most.
func (c *Comm) incomplete(p *op, from, to, most int) (ranks []int) {
	for s := from; s < to && len(ranks) < most; s++ {
		if int(p.seen[s].count) < p.shape.chunks {
			ranks = append(ranks, p.shape.rootOf(s))
		}
	}
	return ranks
}

// slowest returns the children in this rank's own tree that leave the least room to send.
func (c *Comm) slowest(p *op) (ranks []int) {
	if p.eager || p.window == 0 {
		return nil
	}
	below := c.below(p, p.shape.shard(c.cfg.Rank))
	for j, limit := range below {
		if limit == slices.Min(below) {
			ranks = append(ranks, (c.cfg.Rank+1<<j)%c.cfg.Size)
		}
	}
	return ranks
}
