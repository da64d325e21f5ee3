package world

import (
	"net"
	"syscall"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
)

// listener takes connections. Its kernel makes them, so callers do not notice that nobody accepts.
type listener struct {
	host    *Host
	port    uint16
	waiting []*end
	changed chan struct{} // replaced when something has
	closed  bool
}

// connect makes a connection and returns the caller's end. world.mu is held, here and below.
func (l *listener) connect(from *Host, o *hostnet.Dialing) *end {
	segment := l.host.world.cfg.MTU - headers
	if o.Segment > 0 {
		segment = min(segment, o.Segment-timestamps)
	}
	s := &stream{world: l.host.world, flow: meeting(from, l.host), segment: segment}
	a, b := newEnd(s, from, from.free()), newEnd(s, l.host, l.port)
	a.peer, b.peer = b, a
	l.waiting = append(l.waiting, b)
	l.notify()
	return a
}

// meeting is the flow of a connection on which nobody has greeted.
func meeting(a, b *Host) Flow {
	if a.node() || b.node() {
		return Session
	}
	return Meeting
}

func (l *listener) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) close() {
	if l.closed {
		return
	}
	l.closed = true
	delete(l.host.listeners, l.port)
	for _, e := range l.waiting {
		e.reset()
	}
	l.waiting = nil
	l.notify()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	w := l.host.world
	for {
		w.mu.Lock()
		changed := l.changed
		if stopped := l.host.stopped; stopped != nil {
			w.mu.Unlock()
			<-stopped
			continue
		}
		if l.closed {
			w.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
		}
		if len(l.waiting) > 0 {
			defer w.mu.Unlock()
			if w.is(Descriptors, l.host) {
				return nil, failing("accept4", syscall.EMFILE)
			}
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			return c, nil
		}
		w.mu.Unlock()
		<-changed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.host.world.mu.Lock()
	defer l.host.world.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr {
	return &net.TCPAddr{IP: l.host.addr.AsSlice(), Port: int(l.port)}
}
