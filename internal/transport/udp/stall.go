package udp

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// findStalls looks for control connections on which nothing is acknowledged any more. A rank
// that a stall holds up sleeps, so Sleep is where to look; Poll, which has the sink, reports the
// stalls.
func (g *Edges) findStalls(now time.Time) {
	if g.stall == 0 || now.Sub(g.looked) < sys.StallPause(g.stall) {
		return
	}
	g.looked = now
	for _, p := range g.peers {
		if p.line.FD < 0 {
			continue
		}
		if p.stalled = p.stall.Check(p.line.FD, now, g.stall); p.stalled != nil {
			g.stalls++
		}
	}
}

// loseStalled gives up the connections that findStalls has found.
func (g *Edges) loseStalled(s fabric.Sink) {
	g.stalls = 0
	for _, p := range g.peers {
		if p.stalled != nil && p.line.FD >= 0 {
			g.lost(p, s, p.stalled)
		}
		p.stalled = nil
	}
}
