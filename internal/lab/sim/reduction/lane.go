package reduction

// lane is a rail of a host. It paces the contributions of the sockets that share the rail's NIC: an
// idle NIC is given Config.Ahead bytes of them, and when it has sent these, the next. The sockets
// take turns, a run each.
type lane struct {
	host    *Host
	rail    int
	tag     uint64 // of its wake-ups
	sockets []*socket
	last    int  // the socket that has sent last
	turn    int  // the socket that may send
	open    bool // the NIC was idle, and takes the bytes of left
	left    int  // bytes that the NIC still takes
	moved   bool // something was sent since pump was called
	waiting bool // a wake-up is asked for
}

// room returns how many bytes the NIC takes from a socket now.
func (l *lane) room(s *socket) int {
	if !l.open || l.sockets[l.turn] != s {
		return 0
	}
	return l.left
}

// flushed notes that a socket had contributions, and how many of them the NIC has taken.
func (l *lane) flushed(s *socket, taken int) {
	s.wants = true
	if taken > 0 {
		l.moved, l.last = true, l.turn
		l.pass()
	}
}

// pass gives the turn to the next socket that wants it, and reports whether there is one: after
// others, the one that has sent last.
func (l *lane) pass() bool {
	for i := range l.sockets {
		if next := (l.last + 1 + i) % len(l.sockets); l.sockets[next].wants {
			l.turn = next
			return true
		}
	}
	return false
}

// pump is called before and after rounds of the engine. It reports whether another one is of use.
func (l *lane) pump() bool {
	moved := l.moved
	l.moved = false
	switch {
	case l.waiting:
		return false
	case !l.open && l.backlog() > 0:
		l.wait()
		return false
	case !l.open && !l.pass():
		return false
	case !l.open:
		l.open, l.left = true, l.host.job.cfg.Ahead
	case l.left <= 0:
		l.open = false
		l.wait()
		return false
	case !moved: // the socket that has the turn has nothing any more
		l.sockets[l.turn].wants = false
		l.open = l.pass()
	}
	return l.open
}

func (l *lane) backlog() Time { return l.host.job.net.Backlog(l.host.rank, l.rail) }

// wait asks for a wake-up when the NIC has sent all that it has: a moment later, so that an
// endpoint that shares the NIC and looks when it is idle comes first.
func (l *lane) wait() {
	l.waiting = true
	net := l.host.job.net
	net.At(net.Now()+l.backlog()+1, l.host.rank, l.tag)
}

// wake says that the NIC is through.
func (l *lane) wake() {
	l.waiting = false
	l.pump()
}
