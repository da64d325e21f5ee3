package datagram

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// family is where IPv4 and IPv6 differ.
type family struct {
	domain   int
	headers  int // bytes of the IP and the UDP header
	level    int // of the options below
	mtu      int
	discover int
	whole    int // discover's value: never fragment
}

var (
	ipv4 = &family{unix.AF_INET, 20 + 8, unix.IPPROTO_IP, unix.IP_MTU, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO}
	ipv6 = &family{unix.AF_INET6, 40 + 8, unix.IPPROTO_IPV6, unix.IPV6_MTU, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO}
)

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// sockaddr is the address as the kernel takes it. A zone is an interface's name.
func sockaddr(at netip.AddrPort) (unix.Sockaddr, error) {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if zone := at.Addr().Zone(); zone != "" {
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("datagram: zone of %v: %w", at, err)
		}
		to.ZoneId = uint32(ifi.Index)
	}
	return to, nil
}
