package world

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

// sessions is the session.Network of a host.
type sessions struct{ host *Host }

// Sessions implements hostnet.Network.
func (h *Host) Sessions() session.Network { return sessions{h} }

// Listen implements session.Network.
func (n sessions) Listen(address string) (net.Listener, error) {
	return n.host.Listen(context.Background(), "tcp", address)
}

// Dial implements session.Network.
func (n sessions) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.host.Dial(ctx, "tcp", address, hostnet.Dialing{})
}

// Socket implements session.Network.
func (n sessions) Socket(o datagram.Options) (*datagram.Socket, error) {
	h := n.host
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) || h.gone {
		return nil, failing("socket", syscall.EMFILE)
	}
	s := &socket{host: h, port: h.free()}
	h.sockets[s.port] = s
	return datagram.Carried(int(s.port), netip.AddrPortFrom(o.Local, s.port), s), nil
}

// Poller implements session.Network.
func (n sessions) Poller() (datagram.Poller, error) {
	n.host.world.mu.Lock()
	defer n.host.world.mu.Unlock()
	if n.host.world.is(Descriptors, n.host) {
		return nil, failing("epoll_create1", syscall.EMFILE)
	}
	return &poller{sleeper: newSleeper(n.host)}, nil
}

// socket is a UDP socket. It implements datagram.Carrier. world.mu guards everything.
type socket struct {
	host    *Host
	port    uint16
	peer    netip.AddrPort
	muted   bool
	queue   []packet
	arrived int           // packets that have come so far, and the packets under way
	news    syscall.Errno // what the network said about a datagram that was sent
	sent    int           // calls of Send
	full    bool          // the last Send found no room
	watch   *watch        // nil: nobody
}

var _ datagram.Carrier = (*socket)(nil)

// Connect implements datagram.Carrier.
func (s *socket) Connect(peer netip.AddrPort) error {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	s.peer = peer
	return nil
}

// Mute implements datagram.Carrier.
func (s *socket) Mute(on bool) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	s.muted = on
}

// MTU implements datagram.Carrier.
func (s *socket) MTU() int {
	w := s.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mtu(s.host) - datagramHeaders
}

// Queue implements datagram.Carrier.
func (s *socket) Queue(int) int { return s.host.world.cfg.Queue }

// Send implements datagram.Carrier.
func (s *socket) Send(head, payload []byte) syscall.Errno {
	h := s.host
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	size := datagramHeaders + len(head) + len(payload)
	s.sent++
	switch {
	case h.gone:
		return 0
	case h.stopped != nil || h.sent.After(now.Add(backlog)):
		s.full = true
		return syscall.EAGAIN
	case size > w.mtu(h):
		return syscall.EMSGSIZE
	case w.is(Congested, h):
		return syscall.ENOBUFS
	case w.is(Refused, h):
		return syscall.EPERM
	case s.news != 0:
		return s.takeNews()
	case w.is(Unreachable, h) && s.sent%2 == 0:
		return syscall.ECONNREFUSED
	}
	left := h.leave(now, size)
	to := h.at(s.peer.Addr())
	if to == nil || !w.passes(h, to, Slots, size) {
		return 0
	}
	peer := to.sockets[s.peer.Port()]
	if peer == nil || peer.peer != netip.AddrPortFrom(h.addr, s.port) {
		if peer == nil && w.passes(to, h, Slots, smallest) {
			s.news = syscall.ECONNREFUSED
			s.ring()
		}
		return 0
	}
	if peer.muted {
		return 0
	}
	if len(peer.queue) >= w.cfg.Queue {
		w.lost++
		return 0
	}
	peer.queue = append(peer.queue, packet{to.arrive(left, size), append(append([]byte(nil), head...), payload...)})
	peer.arrived++
	peer.ring()
	return 0
}

// mtu returns the bytes of the largest packet that a host's interface takes of sessions. w.mu is held.
func (w *World) mtu(h *Host) int {
	now, mtu := time.Since(w.start), w.cfg.MTU
	for i := range w.faults {
		if f := &w.faults[i]; f.What == Narrow && w.cfg.place(f.From) == h.place && f.active(now) {
			mtu = min(mtu, f.Least-1)
		}
	}
	return mtu
}

// takeNews returns what the network said, once.
func (s *socket) takeNews() syscall.Errno {
	e := s.news
	s.news = 0
	return e
}

// Receive implements datagram.Carrier.
func (s *socket) Receive() ([]byte, syscall.Errno) {
	w := s.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.host.stopped != nil || s.host.gone:
		return nil, syscall.EAGAIN
	case s.news != 0:
		return nil, s.takeNews()
	case len(s.queue) == 0 || s.queue[0].at.After(time.Now()):
		return nil, syscall.EAGAIN
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	return p.data, 0
}

// Close implements datagram.Carrier.
func (s *socket) Close() error {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if s.host.sockets[s.port] == s {
		delete(s.host.sockets, s.port)
	}
	if s.watch != nil {
		s.watch.poller.forget(s.watch)
	}
	return nil
}

func (s *socket) ring() {
	if s.watch != nil {
		s.watch.poller.ring()
	}
}

// String names the socket.
func (s *socket) String() string { return fmt.Sprintf("%v:%d", s.host.addr, s.port) }
