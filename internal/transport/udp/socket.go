package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

func (o *Options) group(subgroup int) netip.Addr {
	addr := o.Group
	for range subgroup {
		addr = addr.Next()
	}
	return addr
}

func (o *Options) sockaddr(subgroup int) unix.Sockaddr {
	at, _ := batch.Sockaddr(netip.AddrPortFrom(o.group(subgroup), o.Port)) // a group has no zone
	return at
}

// openReceiver returns a socket that receives one subgroup. The filter is
// attached before the socket is bound, so that no stranger's datagram is ever
// queued. Ranks of one host share the port.
func openReceiver(o *Options, subgroup int) (fd int, err error) {
	if fd, err = batch.Open(o.Family().Domain); err != nil {
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
	if err := Multicasts(o.Interface); err != nil {
		return err
	}
	rcvBuf := o.RcvBuf
	if rcvBuf == 0 {
		rcvBuf = 1 << 30 // The kernel cuts it to net.core.rmem_max.
	}
	if err := batch.Set(fd,
		batch.Option{Name: "SO_REUSEADDR", Level: unix.SOL_SOCKET, Opt: unix.SO_REUSEADDR, Value: 1},
		batch.Option{Name: "SO_RCVBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_RCVBUF, Value: rcvBuf}); err != nil {
		return err
	}
	var lacks *batch.UnsupportedError
	// Without it the filter alone keeps out datagrams to the group on another interface.
	if err := batch.Set(fd, o.Family().Joined); err != nil && !errors.As(err, &lacks) {
		return err
	}
	at := o.sockaddr(subgroup)
	if err := unix.Bind(fd, at); err != nil {
		where := netip.AddrPortFrom(o.group(subgroup), o.Port)
		if errors.Is(err, unix.EADDRINUSE) {
			return unavailable("%w", &PortTakenError{At: where})
		}
		return unavailable("bind %v: %w", where, err)
	}
	return joinGroup(fd, o, subgroup)
}

// tryReceiver returns what keeps a socket from receiving a subgroup.
func tryReceiver(o *Options, subgroup int) error {
	fd, err := batch.Open(o.Family().Domain)
	if err != nil {
		return err
	}
	return errors.Join(receive(fd, o, subgroup), unix.Close(fd))
}

// PortTakenError says that another program has a group's address.
type PortTakenError struct{ At netip.AddrPort }

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("%v is in use by a socket that does not share it: choose another MCAST_PORT or MCAST_GROUP", e.At)
}

func joinGroup(fd int, o *Options, subgroup int) error {
	err := o.Family().Join(fd, o.group(subgroup), o.Interface.Index)
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
	if fd, err = batch.Open(o.Family().Domain); err != nil {
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
	f := o.Family()
	hops := f.Hops
	hops.Value = o.TTL
	if err := sys.Mark(fd, o.DSCP); err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	if err := sendThrough(fd, o); err != nil {
		return err
	}
	if err := bindSource(fd, o); err != nil {
		return err
	}
	// Several ranks may share a host, and no router says of multicast that a path takes less.
	if err := batch.Set(fd, f.Loop, hops, f.Probing,
		batch.Option{Name: "SO_SNDBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_SNDBUF, Value: batch.FirstBacklog}); err != nil {
		return err
	}
	err := unix.Connect(fd, o.sockaddr(subgroup))
	if errors.Is(err, unix.ENETUNREACH) && f == batch.IPv6 && o.Interface.Flags&net.FlagLoopback != 0 {
		return unavailable("multicast to %v through %s, which does none over IPv6 by itself (ip -6 route add local "+
			"ff00::/8 dev %s): %w",
			o.group(subgroup), o.Interface.Name, o.Interface.Name, err)
	}
	if err != nil {
		return unavailable("multicast to %v through %s: %w", o.group(subgroup), o.Interface.Name, err)
	}
	return nil
}

// sentBy reports whether an address is the one that a rank multicasts from.
func (o *Options) sentBy(rank int, at unix.Sockaddr) bool {
	return len(o.Sources) == 0 || batch.AddrPort(at).Addr() == o.Sources[rank].WithZone("")
}

// sendThrough has a socket send its multicast through the interface.
func sendThrough(fd int, o *Options) error {
	if err := o.Family().SendThrough(fd, o.Interface.Index); err != nil {
		return unavailable("multicast through %s: %w", o.Interface.Name, err)
	}
	return nil
}

// bindSource has a socket send from this rank's address, if ranks have any.
func bindSource(fd int, o *Options) error {
	if len(o.Sources) == 0 {
		return nil
	}
	from, err := batch.Sockaddr(netip.AddrPortFrom(o.Sources[o.Rank], 0))
	if err == nil {
		err = unix.Bind(fd, from)
	}
	if err != nil {
		return unavailable("multicast from %v: %w", o.Sources[o.Rank], sys.Drawn(err))
	}
	return nil
}
