package udp

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
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

// openReceiver returns a socket that receives one subgroup. The filter is
// attached before the socket is bound, so that no stranger's datagram is ever
// queued. Ranks of one host share the port.
func openReceiver(o *Options, subgroup int) (fd int, err error) {
	if fd, err = batch.Open(unix.AF_INET); err != nil {
		return -1, err
	}
	if err = attachFilter(fd, o); err == nil {
		err = receive(fd, o, subgroup)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// receive binds a new socket to one subgroup and joins it.
func receive(fd int, o *Options, subgroup int) error {
	rcvBuf := o.RcvBuf
	if rcvBuf == 0 {
		rcvBuf = 1 << 30 // The kernel cuts it to net.core.rmem_max.
	}
	if err := batch.Set(fd,
		batch.Option{Name: "SO_REUSEADDR", Level: unix.SOL_SOCKET, Opt: unix.SO_REUSEADDR, Value: 1},
		batch.Option{Name: "SO_RCVBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_RCVBUF, Value: rcvBuf},
		batch.Option{Name: "IP_MULTICAST_ALL", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_ALL, Value: 0, Since: "2.6.31"}); err != nil {
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
	return &unix.IPMreqn{Multiaddr: o.group(subgroup).As4(), Ifindex: int32(o.Interface.Index)}
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

// openSender returns a socket that multicasts to one subgroup.
func openSender(o *Options, subgroup int) (fd int, err error) {
	if fd, err = batch.Open(unix.AF_INET); err != nil {
		return -1, err
	}
	if err := send(fd, o, subgroup); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// send connects a new socket to one subgroup, so that the destination is looked up once. With the
// interface given, Linux needs no route to a multicast address.
func send(fd int, o *Options, subgroup int) error {
	if err := sendThrough(fd, o); err != nil {
		return err
	}
	if err := batch.Set(fd,
		batch.Option{Name: "IP_MULTICAST_LOOP", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_LOOP, Value: 1}, // Several ranks may share a host.
		batch.Option{Name: "IP_MULTICAST_TTL", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_TTL, Value: o.TTL},
		// Never fragment, and believe nobody who says that a path takes less: no router answers multicast.
		batch.Option{Name: "IP_MTU_DISCOVER", Level: unix.IPPROTO_IP, Opt: unix.IP_MTU_DISCOVER, Value: unix.IP_PMTUDISC_PROBE},
		batch.Option{Name: "SO_SNDBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_SNDBUF, Value: batch.FirstBacklog}); err != nil {
		return err
	}
	if err := unix.Connect(fd, o.sockaddr(subgroup)); err != nil {
		return unavailable("multicast to %v through %s: %w", o.group(subgroup), o.Interface.Name, err)
	}
	return nil
}

// sentBy reports whether an address is the one that a rank multicasts from.
func (o *Options) sentBy(rank int, at unix.Sockaddr) bool {
	from, ok := at.(*unix.SockaddrInet4)
	return len(o.Sources) == 0 || ok && netip.AddrFrom4(from.Addr) == o.Sources[rank]
}

// sendThrough has a socket send its multicast through the interface, from this rank's address.
func sendThrough(fd int, o *Options) error {
	via := &unix.IPMreqn{Ifindex: int32(o.Interface.Index)}
	if len(o.Sources) > 0 {
		via.Address = o.Sources[o.Rank].As4()
	}
	if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, via); err != nil {
		return unavailable("multicast through %s: %w", o.Interface.Name, err)
	}
	return nil
}
