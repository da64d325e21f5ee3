package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Uplink returns the interface by which other hosts reach this one, and its addresses of a version: the interface of
// this name if there is a name, else the one of the default route, else loopback.
func Uplink(name string, v netdev.Version) (*net.Interface, []netip.Addr, error) {
	if name != "" {
		ifi, err := udp.Choose(name, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("MCAST_IFACE=%q: %w", name, err)
		}
		addrs := netdev.Addresses(ifi, v)
		if len(addrs) == 0 {
			return nil, nil, fmt.Errorf("MCAST_IFACE=%q has no IPv%d address: give it one, or have MCAST_FAMILY, MCAST_GROUP "+
				"and NCCL_SOCKET_FAMILY ask for none", name, v)
		}
		return ifi, addrs, nil
	}
	if ifi, addrs := netdev.Uplink(v); ifi != nil {
		return ifi, addrs, nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil,
			fmt.Errorf("this host's interfaces cannot be listed, for which a sandbox must allow AF_NETLINK: %w", err)
	}
	for i := range all {
		if all[i].Flags&net.FlagLoopback == 0 {
			continue
		}
		if addrs := netdev.Addresses(&all[i], v); len(addrs) > 0 {
			return &all[i], addrs, nil
		}
	}
	if _, addrs := netdev.Uplink(netdev.Any); v != netdev.Any && (len(addrs) > 0 || slices.ContainsFunc(all, addressed)) {
		return nil, nil,
			fmt.Errorf("no interface has an IPv%d address, which MCAST_FAMILY, MCAST_GROUP or NCCL_SOCKET_FAMILY asks for: "+
				"give one such an address (IPv6 may be off: sysctl net.ipv6.conf.all.disable_ipv6), or ask for none", v)
	}
	if i := slices.IndexFunc(all, func(i net.Interface) bool { return i.Flags&net.FlagLoopback != 0 }); i >= 0 &&
		all[i].Flags&net.FlagUp != 0 {
		return nil, nil, errors.New("this machine has no interface with an address (ip addr show)")
	}
	return nil, nil, errors.New("this machine has no interface with an address; even loopback is down (ip link set lo up)")
}

// addressed reports whether an interface is up and has an address of any version.
func addressed(ifi net.Interface) bool {
	return ifi.Flags&net.FlagUp != 0 && len(netdev.Addresses(&ifi, netdev.Any)) > 0
}
