package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Network is what a rank reaches other hosts through: the kernel, unless group.Options name another.
// internal/lab/world has one in virtual time.
type Network interface {
	Identity
	Interfaces
	Dialer
	Fabrics
	Regions
}

// Identity is who and where this process is.
type Identity interface {
	// Host names this host in the words of netdev.HostID.
	Host() string
	// User names the user of this process in the words of netdev.UserID.
	User() string
	// Name is what people call this host, empty where that is unknown.
	Name() string
	// Cores is how many of this host's cores the process may use at a time, at least 1.
	Cores() int
}

// Interfaces is the interfaces of a host, and what leaves by them.
type Interfaces interface {
	// Uplink returns the interface by which other hosts reach this one, of this name if there is
	// one, and its addresses of a version, as netdev.Addresses does.
	Uplink(name string, v netdev.Version) (*net.Interface, []netip.Addr, error)
	// Candidates returns the addresses of a version by which other hosts may reach this one, of all interfaces.
	Candidates(v netdev.Version) []netdev.Candidate
	// Multicast returns the interface for multicast to ranks at these addresses.
	Multicast(name string, ranks []netip.Addr) (*net.Interface, error)
	// Look returns the state of the link of an interface, and its MTU now; zero where that is
	// unknown.
	Look(name string) (netdev.Link, int)
	// Link returns the sending link of an interface. It works; an error says why this process shares it
	// with no other.
	Link(ifi *net.Interface) (Link, error)
}

// Dialer is connections to other ranks.
type Dialer interface {
	// Listen and Dial are net's.
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	Dial(ctx context.Context, network, address string, o Dialing) (net.Conn, error)
	// Acknowledged ends a connection on which nothing is acknowledged for so long, or, with 0 and where a
	// sandbox refuses it, when TCP likes.
	Acknowledged(c net.Conn, within time.Duration)
	// Persist keeps a connection that is in use alive as long as the peer may live, see
	// sys.Persist.
	Persist(c net.Conn)
	// RoundTrip returns the shortest round trip on a connection so far; 0: unknown.
	RoundTrip(c net.Conn) time.Duration
}

// Fabrics is what data travel by.
type Fabrics interface {
	// Sessions is what aggregation nodes are reached over.
	Sessions() session.Network
	Datagrams
	// Streams opens the fabric of the direct Reduce-Scatter, and takes over its connections. After
	// an error they are in conns still, to open again with or to close.
	Streams(o *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error)
}

// Regions is memory that ranks of a host share.
type Regions interface {
	// ServeRegion makes memory that ranks of this host share, and gives it to those of the job that
	// know the key, until all have it or ctx ends: shm.Serve.
	ServeRegion(ctx context.Context, job, key uint64, lay shm.Layout) (RegionServer, error)
	// DialRegion asks the server at an address of this host for the region of a rank, of size:
	// shm.Dial.
	DialRegion(ctx context.Context, address string, job, key uint64, rank, size int) (RegionClient, error)
}

// Link is the sending link of an interface.
type Link interface {
	fabric.Link
	// Has reports whether packets from a local address leave by it.
	Has(local netip.Addr) bool
	// Close gives it back.
	Close() error
}

// Dialing says how a connection is made.
type Dialing struct {
	Timeout time.Duration // of the attempt; 0: as TCP likes
	Segment int           // payload bytes of the largest segments, both ways; 0: as TCP finds right
	Bound   netdev.Bound  // how its socket is bound
}

// Prober is udp.Prober.
type Prober interface {
	Port() (uint16, error)
	Multicast(packet int) error
	Unicast(to netip.AddrPort, packet int) error
	Listen(most time.Duration, enough func([]udp.Heard) bool)
	Heard() []udp.Heard
	Close()
}

// Kernel is the Network of a process.
type Kernel struct{}

var (
	_ Network = Kernel{}
	_ Binder  = Kernel{}
)

// known is what the groups of a process have found out about its host's network.
var known struct {
	host       netdev.Memo[struct{}, string]
	uplinks    netdev.Memo[named, uplinkOf]
	candidates netdev.Memo[netdev.Version, []netdev.Candidate]
	multicast  netdev.Memo[string, multicastBy]
	links      netdev.Memo[string, linkOf]
}

type named struct {
	name string
	v    netdev.Version
}

type uplinkOf struct {
	ifi   *net.Interface
	addrs []netip.Addr
	err   error
}

type multicastBy struct {
	ifi *net.Interface
	err error
}

type linkOf struct {
	netdev.Link
	mtu int
}

// Host implements Network.
func (Kernel) Host() string {
	return known.host.Get(struct{}{}, func() (string, bool) {
		id := netdev.HostID()
		return id, !strings.HasSuffix(id, "/") // with an address
	})
}

// User implements Network.
func (Kernel) User() string { return netdev.UserID() }

// Name implements Network.
func (Kernel) Name() string { return hostName() }

// Uplink implements Network.
func (Kernel) Uplink(name string, v netdev.Version) (*net.Interface, []netip.Addr, error) {
	u := known.uplinks.Get(named{name, v}, func() (u uplinkOf, keep bool) {
		u.ifi, u.addrs, u.err = Uplink(name, v)
		return u, u.err == nil
	})
	return u.ifi, u.addrs, u.err
}

// Candidates implements Network.
func (Kernel) Candidates(v netdev.Version) []netdev.Candidate {
	return known.candidates.Get(v, func() ([]netdev.Candidate, bool) {
		found := netdev.Candidates(v)
		return found, len(found) > 0
	})
}

// Multicast implements Network.
func (Kernel) Multicast(name string, ranks []netip.Addr) (*net.Interface, error) {
	m := known.multicast.Get(fmt.Sprint(name, ranks), func() (m multicastBy, keep bool) {
		m.ifi, m.err = udp.Choose(name, ranks)
		return m, m.err == nil
	})
	return m.ifi, m.err
}

// Look implements Network.
func (Kernel) Look(name string) (netdev.Link, int) {
	l := known.links.Get(name, func() (linkOf, bool) {
		mtu := 0
		if ifi, err := net.InterfaceByName(name); err == nil {
			mtu = ifi.MTU
		}
		return linkOf{netdev.LinkOf(name), mtu}, mtu > 0
	})
	return l.Link, l.mtu
}

// Listen implements Network.
func (Kernel) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// Dial implements Network.
func (Kernel) Dial(ctx context.Context, network, address string, o Dialing) (net.Conn, error) {
	d := net.Dialer{Timeout: o.Timeout, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			sys.Private(int(fd))
			if o.Segment > 0 { // where it is refused, TCP finds the path's size by itself, or the kernel's own MTU serves
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, o.Segment)
			}
		})
	}}
	o.Bound.To(&d)
	return d.DialContext(ctx, network, address)
}

// Acknowledged implements Network.
func (Kernel) Acknowledged(c net.Conn, within time.Duration) {
	sys.Wish(c.(syscall.Conn), unix.TCP_USER_TIMEOUT, int(within.Milliseconds()))
}

// Persist implements Network.
func (Kernel) Persist(c net.Conn) { sys.Persist(c.(syscall.Conn)) }

// Cores implements Network: as many as the scheduler runs goroutines on, which goes by affinity and quota.
func (Kernel) Cores() int { return runtime.GOMAXPROCS(0) }

// RoundTrip implements Network.
func (Kernel) RoundTrip(c net.Conn) time.Duration { return sys.RoundTrip(c.(syscall.Conn)) }

// Link implements Network.
func (Kernel) Link(ifi *net.Interface) (Link, error) { return sendlink.Open(ifi) }

// Sessions implements Network.
func (Kernel) Sessions() session.Network { return session.Kernel{} }

// Probe implements Network.
func (Kernel) Probe(o *udp.Options) (Prober, error) { return udp.OpenProber(*o) }

// Gather implements Network.
func (Kernel) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Conns = control
	return udp.Open(own)
}

// Streams implements Network.
func (Kernel) Streams(o *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error) {
	own := *o
	own.Conns = conns
	return tcp.Open(own)
}

// Private keeps what the kernel holds out of the children that the process forks.
func Private(c any) {
	if held, ok := c.(syscall.Conn); ok {
		sys.PrivateConn(held)
	}
}
