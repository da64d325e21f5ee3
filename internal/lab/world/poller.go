package world

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

// packet is a datagram in a socket's queue, or on its way there.
type packet struct {
	at   time.Time // of arrival
	data []byte
}

// poller is an epoll of sockets. It implements datagram.Poller. world.mu guards everything.
type poller struct {
	sleeper
	watches []*watch
	events  []unix.EpollEvent
}

var _ datagram.Poller = (*poller)(nil)

// watch is a socket that a poller watches.
type watch struct {
	poller *poller
	socket *socket
	tag    int
	events uint32
	in     int  // packets that had arrived when EPOLLIN was reported last, counted from the beginning
	out    bool // EPOLLOUT was reported, and no Send has found no room since
}

// Watch implements datagram.Poller.
func (p *poller) Watch(fd, tag int, events uint32) error {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	s := p.host.sockets[uint16(fd)]
	if s == nil {
		return syscall.EBADF
	}
	s.watch = &watch{poller: p, socket: s, tag: tag, events: events}
	p.watches = append(p.watches, s.watch)
	p.ring()
	return nil
}

// Change implements datagram.Poller.
func (p *poller) Change(fd, tag int, events uint32) error {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	for _, w := range p.watches {
		if int(w.socket.port) == fd {
			*w = watch{poller: p, socket: w.socket, tag: tag, events: events}
			return nil
		}
	}
	return syscall.ENOENT
}

// forget drops a socket that is closed. world.mu is held.
func (p *poller) forget(w *watch) {
	if i := slices.Index(p.watches, w); i >= 0 {
		p.watches = slices.Delete(p.watches, i, i+1)
	}
	w.socket.watch = nil
}

// Ready implements datagram.Poller.
func (p *poller) Ready() []unix.EpollEvent {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	return p.ready(time.Now())
}

func (p *poller) ready(now time.Time) []unix.EpollEvent {
	p.events = p.events[:0]
	if p.host.stopped != nil || p.host.gone {
		return nil
	}
	for _, w := range p.watches {
		if events := w.look(now); events != 0 {
			p.events = append(p.events, unix.EpollEvent{Events: events, Fd: int32(w.tag)})
		}
	}
	return p.events
}

// look returns the events of a socket: all that hold or, if it is watched for edges, the new ones.
func (w *watch) look(now time.Time) (events uint32) {
	s := w.socket
	edge := w.events&unix.EPOLLET != 0
	arrived := s.arrived
	for i := len(s.queue) - 1; i >= 0 && s.queue[i].at.After(now); i-- {
		arrived--
	}
	there := len(s.queue) > s.arrived-arrived
	if w.events&unix.EPOLLIN != 0 && there && (!edge || arrived != w.in) {
		events |= unix.EPOLLIN
		w.in = arrived
	}
	if s.full {
		w.out = false
		s.full = s.host.sent.After(now.Add(backlog))
	}
	if w.events&unix.EPOLLOUT != 0 && !s.full && (!edge || !w.out) {
		events |= unix.EPOLLOUT
		w.out = true
	}
	if s.news != 0 {
		events |= unix.EPOLLERR
	}
	return events
}

// next returns when something will be ready, if nobody sends before. world.mu is held.
func (p *poller) next(by time.Time) time.Time {
	if p.host.gone {
		return by
	}
	for _, w := range p.watches {
		s := w.socket
		seen := w.in - (s.arrived - len(s.queue)) // of the queue
		if w.events&unix.EPOLLET == 0 {
			seen = 0
		}
		if seen = max(seen, 0); seen < len(s.queue) && s.queue[seen].at.Before(by) {
			by = s.queue[seen].at
		}
		if at := s.host.sent.Add(-backlog); s.full && w.events&unix.EPOLLOUT != 0 && at.Before(by) {
			by = at
		}
	}
	return by
}

// Wait implements datagram.Poller.
func (p *poller) Wait(most time.Duration) []unix.EpollEvent {
	w := p.host.world
	w.mu.Lock()
	now := time.Now()
	ready := p.ready(now)
	by := p.next(now.Add(most))
	w.mu.Unlock()
	if len(ready) > 0 {
		return ready
	}
	p.sleep(by.Sub(now))
	return p.Ready()
}

// Close implements datagram.Poller.
func (p *poller) Close() error {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	for _, w := range p.watches {
		if w.socket.watch == w {
			w.socket.watch = nil
		}
	}
	p.watches = nil
	return nil
}
