package batch

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Family is where IPv4 and IPv6 differ: in the headers of packets and the options of sockets.
type Family struct {
	Name    string // "IPv4"
	Domain  int    // of sockets
	Headers int    // bytes of the IP and the UDP header
	Level   int    // of the options
	MTU     int    // the option that tells what the path takes, in bytes
	Source  int    // where the IP header has the sender's address

	Whole   Option // never fragment, and heed the known limit of the path
	Probing Option // never fragment, and ignore reports that a path takes less
	Joined  Option // multicast only of groups that the socket itself has joined
	Loop    Option // multicast reaches others on this host
	Hops    Option // routers that multicast may pass, plus one: to be filled in
}

// IPv4 and IPv6.
var (
	IPv4 = &Family{
		Name: "IPv4", Domain: unix.AF_INET, Headers: 20 + udpHeader, Level: unix.IPPROTO_IP, MTU: unix.IP_MTU, Source: 12,
		Whole: Option{
			Name: "IP_MTU_DISCOVER", Level: unix.IPPROTO_IP, Opt: unix.IP_MTU_DISCOVER, Value: unix.IP_PMTUDISC_DO,
		},
		Probing: Option{
			Name: "IP_MTU_DISCOVER", Level: unix.IPPROTO_IP, Opt: unix.IP_MTU_DISCOVER, Value: unix.IP_PMTUDISC_PROBE,
		},
		Joined: Option{
			Name: "IP_MULTICAST_ALL", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_ALL, Value: 0, Since: "2.6.31",
		},
		Loop: Option{Name: "IP_MULTICAST_LOOP", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_LOOP, Value: 1},
		Hops: Option{Name: "IP_MULTICAST_TTL", Level: unix.IPPROTO_IP, Opt: unix.IP_MULTICAST_TTL},
	}
	IPv6 = &Family{
		Name: "IPv6", Domain: unix.AF_INET6, Headers: 40 + udpHeader, Level: unix.IPPROTO_IPV6, MTU: unix.IPV6_MTU, Source: 8,
		Whole: Option{
			Name: "IPV6_MTU_DISCOVER", Level: unix.IPPROTO_IPV6, Opt: unix.IPV6_MTU_DISCOVER, Value: unix.IPV6_PMTUDISC_DO,
		},
		Probing: Option{
			Name: "IPV6_MTU_DISCOVER", Level: unix.IPPROTO_IPV6, Opt: unix.IPV6_MTU_DISCOVER, Value: unix.IPV6_PMTUDISC_PROBE,
		},
		Joined: Option{Name: "IPV6_MULTICAST_ALL", Level: unix.IPPROTO_IPV6, Opt: multicastAll6, Value: 0, Since: "4.20"},
		Loop:   Option{Name: "IPV6_MULTICAST_LOOP", Level: unix.IPPROTO_IPV6, Opt: unix.IPV6_MULTICAST_LOOP, Value: 1},
		Hops:   Option{Name: "IPV6_MULTICAST_HOPS", Level: unix.IPPROTO_IPV6, Opt: unix.IPV6_MULTICAST_HOPS},
	}
)

const (
	udpHeader     = 8
	multicastAll6 = 29 // IPV6_MULTICAST_ALL of linux/in6.h
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) *Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Sockaddr is an address as the kernel takes it. A zone is an interface's name.
func Sockaddr(at netip.AddrPort) (unix.Sockaddr, error) {
	addr := at.Addr().Unmap()
	if addr.Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: addr.As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: int(at.Port()), Addr: addr.As16()}
	if zone := addr.Zone(); zone != "" {
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("zone of %v: %w", at, err)
		}
		to.ZoneId = uint32(ifi.Index)
	}
	return to, nil
}

// AddrPort is an address that the kernel gave, without its zone; not valid if it is of another family.
func AddrPort(at unix.Sockaddr) netip.AddrPort {
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port))
	}
	return netip.AddrPort{}
}

// PortOf is the port that a socket is bound to.
func PortOf(fd int) (uint16, error) {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	return AddrPort(at).Port(), nil
}

// Join has a socket receive datagrams to a group on the interface with this index.
func (f *Family) Join(fd int, group netip.Addr, index int) error {
	if f == IPv4 {
		return unix.SetsockoptIPMreqn(fd, f.Level, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
	}
	return unix.SetsockoptIPv6Mreq(fd, f.Level, unix.IPV6_JOIN_GROUP,
		&unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
}

// Leave takes Join back.
func (f *Family) Leave(fd int, group netip.Addr, index int) error {
	if f == IPv4 {
		return unix.SetsockoptIPMreqn(fd, f.Level, unix.IP_DROP_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
	}
	return unix.SetsockoptIPv6Mreq(fd, f.Level, unix.IPV6_LEAVE_GROUP,
		&unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
}

// SendThrough has a socket send its multicast through the interface of an index.
func (f *Family) SendThrough(fd, index int) error {
	if f == IPv4 {
		return unix.SetsockoptIPMreqn(fd, f.Level, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)})
	}
	return unix.SetsockoptInt(fd, f.Level, unix.IPV6_MULTICAST_IF, index)
}
