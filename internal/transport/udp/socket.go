package udp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

func (o *Options) group(subgroup int) netip.Addr {
	addr := o.Group
	for range subgroup {
		addr = addr.Next()
	}
	return addr
}

func (o *Options) sockaddr(subgroup int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(o.Port), Addr: o.group(subgroup).As4()}
}

// option is one setsockopt call with an integer.
type option struct {
	name       string
	level, opt int
	value      int
}

func set(fd int, options ...option) error {
	for _, s := range options {
		if err := unix.SetsockoptInt(fd, s.level, s.opt, s.value); err != nil {
			return fmt.Errorf("set %s=%d: %w", s.name, s.value, err)
		}
	}
	return nil
}

func newSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open UDP socket: %w", err)
	}
	sys.Private(fd)
	return fd, nil
}

// openReceiver returns a socket that receives one subgroup. The filter is
// attached before the socket is bound, so that no stranger's datagram is ever
// queued. Ranks of one host share the port.
func openReceiver(o *Options, subgroup int) (fd int, err error) {
	if fd, err = newSocket(); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := attachFilter(fd, o); err != nil {
		return -1, err
	}
	return fd, receive(fd, o, subgroup)
}

// receive binds a new socket to one subgroup and joins it.
func receive(fd int, o *Options, subgroup int) error {
	rcvBuf := o.RcvBuf
	if rcvBuf == 0 {
		rcvBuf = 1 << 30 // The kernel cuts it to net.core.rmem_max.
	}
	if err := set(fd,
		option{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		option{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, rcvBuf},
		option{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0}); err != nil {
		return err
	}
	at := o.sockaddr(subgroup)
	if err := unix.Bind(fd, at); err != nil {
		where := netip.AddrPortFrom(o.group(subgroup), o.Port)
		if errors.Is(err, unix.EADDRINUSE) {
			return unavailable("%v is in use by a socket that does not share it: choose another MCAST_PORT or MCAST_GROUP", where)
		}
		return unavailable("bind %v: %w", where, err)
	}
	return joinGroup(fd, o, subgroup)
}

// membership is a subgroup on the interface.
func (o *Options) membership(subgroup int) *unix.IPMreqn {
	return &unix.IPMreqn{Multiaddr: o.group(subgroup).As4(), Ifindex: int32(o.Interface.Index)} //nolint:gosec // Indexes are small.
}

func joinGroup(fd int, o *Options, subgroup int) error {
	err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, o.membership(subgroup))
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return unavailable("join group %v on %s: too many memberships (net.ipv4.igmp_max_memberships): %w",
			o.group(subgroup), o.Interface.Name, err)
	case err != nil:
		return unavailable("join group %v on %s: %w", o.group(subgroup), o.Interface.Name, err)
	}
	return nil
}

// openSender returns a socket that multicasts to one subgroup. It is connected,
// so that the destination is looked up once. With the interface given, Linux needs no
// route to a multicast address.
func openSender(o *Options, subgroup int) (fd int, err error) {
	if fd, err = newSocket(); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := sendThrough(fd, o); err != nil {
		return -1, err
	}
	if err := set(fd,
		option{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1}, // Several ranks may share a host.
		option{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, o.TTL},
		// Never fragment, and believe nobody who says that a path takes less: no router answers multicast.
		option{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		option{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, sys.FirstBacklog}); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, o.sockaddr(subgroup)); err != nil {
		return -1, unavailable("multicast to %v through %s: %w", o.group(subgroup), o.Interface.Name, err)
	}
	return fd, nil
}

// sentBy reports whether an address is the one that a rank multicasts from.
func (o *Options) sentBy(rank int, at unix.Sockaddr) bool {
	from, ok := at.(*unix.SockaddrInet4)
	return len(o.Sources) == 0 || ok && netip.AddrFrom4(from.Addr) == o.Sources[rank]
}

// sendThrough has a socket send its multicast through the interface, from this rank's address.
func sendThrough(fd int, o *Options) error {
	via := &unix.IPMreqn{Ifindex: int32(o.Interface.Index)} //nolint:gosec // Indexes are small.
	if len(o.Sources) > 0 {
		via.Address = o.Sources[o.Rank].As4()
	}
	if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, via); err != nil {
		return unavailable("multicast through %s: %w", o.Interface.Name, err)
	}
	return nil
}
