package engine

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// What a gather lane says to, and asks of, the link that it shares with reductions
// (docs/decisions/0037).

// shares reports whether a reduction shares the links.
func (g *Gather) shares() bool {
	return g.shared != nil && g.shared() || g.cfg.Link != nil && g.cfg.Link.Claimed(fabric.Reductions) > 0
}

// ordered reports whether an operation goes in an order with reductions: an Allgather, whole or as
// windows. Another Broadcast shares the link as it comes. A group in the background is in no order:
// the foreground would wait for it.
func (g *Gather) ordered(o *gatherOp) bool {
	return g.cfg.Link != nil && !g.cfg.Priority.Background && (o.Collective == wire.Allgather || o.Whole > 0)
}

// follows reports whether the next multicast must wait for contributions that claim the link. Where all ranks multicast
// together it waits only while multicast is ahead.
func (g *Gather) follows(together bool) bool {
	g.wait.For, g.claim.What = fabric.Behind.In(together), fabric.Multicast.In(together)
	return (!together || g.cfg.Link.Ahead(0) > 0) && g.wait.Must(g.now)
}

// mostBehind bounds for how long an Allgather that is behind claims the link until it sends again.
const mostBehind = 10 * time.Millisecond

// account tells the link that n chunks from a number on were multicast. While multicast is behind, the link stays
// claimed until credit should allow more: multicast then waits for room at the receivers, which results take as well.
// Parts of an Allgather in the order of ranks follow each other: between two parts the link stays claimed for as long
// as one takes. Otherwise waiting contributions would come in between, and hold up at a receiver the part that they let
// go first here.
func (g *Gather) account(o *gatherOp, together bool, psn, n int) {
	if together {
		more := min(3*(g.now-g.last), mostBehind)
		if g.last = g.now; g.cfg.Link.Ahead(n*g.cfg.Core.Chunk) >= 0 {
			more = 0
		}
		g.claim.Sent(g.now, more)
		return
	}
	if psn == 0 {
		g.began = g.now
	}
	if (psn+n)*g.cfg.Core.Chunk >= o.Bytes {
		g.took = g.now - g.began
	}
	g.claim.Sent(g.now, max(g.took, g.now-g.began, 1))
}
