package engine

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// What a gather lane says to, and asks of, the link that it shares with reductions
// (docs/decisions/0037).

// shares reports whether a reduction shares the links.
func (g *Gather) shares() bool {
	return g.shared != nil && g.shared() || g.cfg.Link != nil && g.cfg.Link.Claimed(fabric.Reductions) > 0
}

// follows reports whether contributions that wait for the link precede what is to be multicast now:
// where all ranks multicast, if that is ahead, else as they say.
func (g *Gather) follows(o *gatherOp) bool {
	if g.cfg.Link == nil || g.together(o) && g.cfg.Link.Ahead(0) <= 0 {
		return false
	}
	return g.wait.Must(g.now)
}

// together reports whether all ranks multicast at the same time.
func (g *Gather) together(o *gatherOp) bool {
	return o.Collective == wire.Allgather || g.comm.Sharing()
}

// account says of the link that n chunks from a number on were multicast. Parts of an Allgather follow
// each other: between two the link stays claimed for as long as one takes, or what waits would come in
// between, and hold up at a receiver what it let go first here.
func (g *Gather) account(o *gatherOp, psn, n int) {
	if g.cfg.Link == nil {
		return
	}
	together := g.together(o)
	if together {
		g.cfg.Link.Ahead(n * g.cfg.Core.Chunk)
	}
	if o.Whole == 0 || together {
		g.claim.Sent(g.now, 0)
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
