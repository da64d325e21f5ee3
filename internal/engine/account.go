package engine

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// How the gather engine books time. It sees an operation posted, chunks sent
// and received, and the end; the phases follow from these.

// toFront moves front to the oldest operation in flight: nothing is ahead of this one any more.
func (g *Gather) toFront() {
	for g.front != g.comm.Posted() && g.ops[g.front%maxTracked].work == nil {
		g.front++
	}
	if g.front == g.comm.Posted() {
		return
	}
	if w := g.ops[g.front%maxTracked].work; w.watch.Phase() == overlap.Queued {
		g.enter(w, overlap.Peers, g.now)
	}
}

// received notes that a chunk of another rank has come: others are there.
func (g *Gather) received(o *gatherOp) {
	if o.work == nil {
		return // not posted yet
	}
	o.in = g.now
	if !o.moving {
		o.moving = true
		if w := o.work; w.watch.Phase() < overlap.Turn {
			g.enter(w, overlap.Transfer, g.now)
			o.out = g.now
		}
	}
}

// sent notes that chunks were sent. Unless the fabric was full, nothing
// but a missing turn or credit had kept them back since the last ones.
func (g *Gather) sent(o *gatherOp, large bool) {
	w := o.work
	switch {
	case w.watch.Phase() == overlap.Turn:
		g.enter(w, overlap.Transfer, g.now)
	case w.watch.Phase() == overlap.Transfer && !g.blocked:
		g.enter(w, overlap.Turn, o.out)
		g.enter(w, overlap.Transfer, g.now)
	case w.watch.Phase() < overlap.Turn && large && !g.cfg.Core.Lossless:
		g.enter(w, overlap.Transfer, g.now) // its barrier is over
	}
	o.out = g.now
}

// yielded notes that the foreground goes first.
func (g *Gather) yielded(o *gatherOp) {
	if w := o.work; w.watch.Phase() != overlap.Turn {
		g.enter(w, overlap.Turn, g.now)
	}
}

// moved ends the transfer of an operation that is done: what came after its
// last chunk was the handshake.
func (g *Gather) moved(o *gatherOp) {
	if last := max(o.in, o.out); last != multicast.Time(0) {
		g.enter(o.work, overlap.Finish, last)
	}
}
