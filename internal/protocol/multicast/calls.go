package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// calls is this rank's knowledge of the calls of other ranks by an operation's number: see compare.go.
type calls struct {
	early    []callOf // messages that came before Post, which wait for it; none after
	credits  []callOf // credit that came before Post: the last of each rank; none after
	sent     bool     // the right neighbour knows what this rank has called
	disputed bool     // a datagram was of another call
}

// callOf is a message with a rank's call.
type callOf struct {
	rank int
	m    wire.Control
}

// hold keeps credit for an operation that was not posted, and reports whether there was room: no
// more ranks are below this one in a tree.
func (a *calls) hold(from int, m *wire.Control, most int) bool {
	for i := range a.credits {
		if a.credits[i].rank == from {
			a.credits[i].m = *m
			return true
		}
	}
	if len(a.credits) >= most {
		return false
	}
	a.credits = append(a.credits, callOf{from, *m})
	return true
}

// send sends the right neighbour, once, this rank's call.
func (a *calls) send(l *layout, out *outbox) {
	if a.sent || l.topo.Size == 1 {
		return
	}
	a.sent = true
	tellCall(l, out, l.topo.Right())
}

// tellCall sends another rank this rank's call.
func tellCall(l *layout, out *outbox, to int) {
	m := l.control(wire.Compare)
	m.Root, m.Bytes = uint16(l.root), uint64(l.bytes)
	m.SetCall(&l.call)
	out.send(to, m)
}
