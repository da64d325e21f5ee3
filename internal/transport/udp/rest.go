package udp

import (
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

var _ fabric.Rester = (*Gather)(nil)

// Rest implements fabric.Rester. Where something is still to be sent, or sent and not acknowledged,
// time alone may bring something to do: a nudge, or a stall.
func (g *Gather) Rest(awake func()) bool {
	return !g.congested && g.Edges.Rest(awake)
}

// Rest implements fabric.Rester.
func (g *Edges) Rest(awake func()) bool {
	if g.backlog > 0 || g.stalls > 0 || len(g.ready)+len(g.tails)+len(g.dirty) > 0 || g.fault != nil && !g.reported {
		return false
	}
	for _, p := range g.peers {
		if p.line.FD >= 0 && !g.settled(p) {
			return false
		}
	}
	return g.poller.Rest(awake)
}

// settled reports whether all that a peer was sent has been acknowledged.
func (g *Edges) settled(p *peer) bool {
	if p.queuedBytes() > 0 || p.line.Pending() {
		return false
	}
	if p.unsettled {
		g.stats.syscalls.Add(1)
		n, err := unix.IoctlGetInt(p.line.FD, unix.SIOCOUTQ)
		p.unsettled = err == nil && n > 0 // of a lost connection, reading tells
	}
	return !p.unsettled
}

// Rouse implements fabric.Rester.
func (g *Edges) Rouse() { g.poller.Rouse() }
