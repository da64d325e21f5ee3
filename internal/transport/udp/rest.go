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
		if p.line.FD >= 0 && !g.allAcked(p) {
			return false
		}
	}
	return g.poller.Rest(awake)
}

// allAcked reports whether all that a peer was sent has been acknowledged.
func (g *Edges) allAcked(p *peer) bool {
	if p.queuedBytes() > 0 || p.line.Pending() {
		return false
	}
	if p.unacked {
		g.stats.syscalls.Add(1)
		n, err := unix.IoctlGetInt(p.line.FD, unix.SIOCOUTQ)
		p.unacked = err == nil && n > 0 // of a lost connection, reading tells
	}
	return !p.unacked
}

// Rouse implements fabric.Rester.
func (g *Edges) Rouse() { g.poller.Rouse() }
