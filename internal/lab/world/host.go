package world

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
)

// Host is a host as one of its processes sees it, which is a rank or an aggregation node. It
// implements hostnet.Network.
type Host struct {
	*machine
	world   *World
	number  int // of the process
	ends    map[*end]struct{}
	gone    bool          // the process has ended
	stopped chan struct{} // closed when the process goes on; nil: it runs
}

// machine is what the processes of a host share.
type machine struct {
	place     int // its number
	addr      netip.Addr
	listeners map[uint16]*listener
	sockets   map[uint16]*socket
	port      uint16
	regions   map[string]*region // by address
	link      sendlink.Words     // what its processes say of the link
	sent      time.Time          // when its link has carried all that it was given
	received  time.Time          // ... the other way
	out, in   int                // bytes that its link has carried, headers included
	crashed   bool               // without power it says nothing any more
}

func newMachine(place int) *machine {
	return &machine{
		place: place, addr: hostAddr(place), port: 32768,
		listeners: map[uint16]*listener{}, sockets: map[uint16]*socket{}, regions: map[string]*region{},
	}
}

var _ hostnet.Network = (*Host)(nil)

const iface = "sim0"

// node reports whether it is an aggregation node's.
func (h *Host) node() bool { return h.number >= h.world.cfg.Ranks }

// Host implements hostnet.Network.
func (h *Host) Host() string { return fmt.Sprintf("boot-%d/1/%v", h.place, h.addr) }

// User implements hostnet.Network.
func (h *Host) User() string {
	user := 0
	if h.number < len(h.world.cfg.Users) {
		user = h.world.cfg.Users[h.number]
	}
	return fmt.Sprintf("%d/1", user)
}

// Name implements hostnet.Network.
func (h *Host) Name() string { return fmt.Sprintf("host%d", h.place) }

// Uplink implements hostnet.Network.
func (h *Host) Uplink(string, netdev.Version) (*net.Interface, []netip.Addr, error) {
	return h.device(), []netip.Addr{h.addr}, nil
}

// Candidates implements hostnet.Network.
func (h *Host) Candidates(netdev.Version) []netdev.Candidate { return nil }

// Multicast implements hostnet.Network.
func (h *Host) Multicast(string, []netip.Addr) (*net.Interface, error) { return h.device(), nil }

// Link implements hostnet.Network.
func (h *Host) Link(*net.Interface) (hostnet.Link, error) {
	return hostLink{sendlink.New(&h.link, func() time.Duration { return time.Since(h.world.start) })}, nil
}

// hostLink is the only link of a host.
type hostLink struct{ *sendlink.Link }

// Has implements hostnet.Link.
func (hostLink) Has(netip.Addr) bool { return true }

// Close implements hostnet.Link.
func (hostLink) Close() error { return nil }

// Look implements hostnet.Network.
func (h *Host) Look(string) (netdev.Link, int) { return netdev.Link{}, h.world.cfg.MTU }

func (h *Host) device() *net.Interface {
	return &net.Interface{Index: 1, MTU: h.world.cfg.MTU, Name: iface, Flags: net.FlagUp | net.FlagMulticast}
}

// Kill ends the process: its kernel closes everything that it had open. With crash the host loses
// power: all its processes end, and nobody is told.
func (h *Host) Kill(crash bool) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	h.crashed = h.crashed || crash
	for _, p := range w.hosts {
		if p == h || crash && p.machine == h.machine {
			p.kill()
		}
	}
}

func (h *Host) kill() {
	h.gone = true
	maps.DeleteFunc(h.sockets, func(_ uint16, s *socket) bool { return s.host == h })
	for _, l := range h.listeners {
		if l.host == h {
			l.close()
		}
	}
	for e := range h.ends {
		e.close()
	}
	h.resume()
}

// Stop stops the process, as SIGSTOP does, for so long.
func (h *Host) Stop(d time.Duration) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if h.stopped != nil || h.gone {
		return
	}
	h.stopped = make(chan struct{})
	time.AfterFunc(d, func() {
		h.world.mu.Lock()
		defer h.world.mu.Unlock()
		h.resume()
	})
}

func (h *Host) resume() {
	if h.stopped == nil {
		return
	}
	close(h.stopped)
	h.stopped = nil
	for e := range h.ends {
		e.notify()
		e.repeat()
	}
}

// failing returns the error of a system call, as package net does.
func failing(call string, no syscall.Errno) error {
	return &net.OpError{Op: call, Net: "tcp", Err: os.NewSyscallError(call, no)}
}

// free returns a port that nobody has.
func (h *Host) free() uint16 {
	h.port++
	return h.port
}

// Listen implements hostnet.Network.
func (h *Host) Listen(_ context.Context, _, address string) (net.Listener, error) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) {
		return nil, failing("listen", syscall.EMFILE)
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = int(h.free())
	}
	if h.listeners[uint16(port)] != nil {
		return nil, failing("listen", syscall.EADDRINUSE)
	}
	l := &listener{host: h, port: uint16(port), changed: make(chan struct{})}
	h.listeners[l.port] = l
	return l, nil
}

// Times of TCP.
const (
	firstSYN   = time.Second // until a connection is asked for again
	firstRTO   = 5 * time.Millisecond
	lastRTO    = time.Second
	patience   = 15 * time.Minute // tcp_retries2
	headers    = 52               // of TCP over IPv4, with timestamps
	timestamps = 12               // which TCP_MAXSEG leaves out
	smallest   = headers
	streamMax  = 256 << 10 // bytes that a stream holds
)

// Dial implements hostnet.Network.
func (h *Host) Dial(ctx context.Context, _, address string, o hostnet.Dialing) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	w := h.world
	var late <-chan time.Time
	if o.Timeout > 0 {
		late = time.After(o.Timeout)
	}
	for pause := firstSYN; ; pause *= 2 {
		w.mu.Lock()
		if w.is(Descriptors, h) || h.gone {
			w.mu.Unlock()
			return nil, failing("socket", syscall.EMFILE)
		}
		to := h.at(at.Addr())
		if to == nil {
			w.mu.Unlock()
			return nil, failing("connect", syscall.EHOSTUNREACH)
		}
		flow := meeting(h, to)
		answered := w.passes(h, to, flow, smallest) && w.passes(to, h, flow, smallest)
		l := to.listeners[at.Port()]
		var c *end
		if answered && l != nil {
			c = l.connect(h, &o)
		}
		w.mu.Unlock()
		if answered {
			time.Sleep(2 * w.cfg.Delay)
			if c == nil {
				return nil, failing("connect", syscall.ECONNREFUSED)
			}
			return c, nil
		}
		select {
		case <-time.After(pause):
		case <-late:
			return nil, failing("connect", syscall.ETIMEDOUT)
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		}
	}
}

// Acknowledged implements hostnet.Network.
func (h *Host) Acknowledged(c net.Conn, within time.Duration) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	endOf(c).limit = within
}

// Persist implements hostnet.Network.
func (h *Host) Persist(c net.Conn) { h.Acknowledged(c, 24*time.Hour) }

// Cores implements hostnet.Network: a core for each rank, since computing takes no virtual time.
func (h *Host) Cores() int { return math.MaxInt }

// RoundTrip implements hostnet.Network.
func (h *Host) RoundTrip(net.Conn) time.Duration { return 2 * h.world.cfg.Delay }
