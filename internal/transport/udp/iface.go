package udp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Choose returns the interface for multicast: the one called name; or, if name is empty, or packets never leave by it
// (lo, a dummy), lo when all peers are on this host and else the interface of the route to them. Peers are the
// addresses of all ranks, of one IP version; there may be none. Whether it does multicast is for Multicasts to say.
func Choose(name string, peers []netip.Addr) (*net.Interface, error) {
	local, err := localAddrs()
	if err != nil {
		return nil, err
	}
	own := ownOf(peers, local)
	if name != "" {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return nil, unavailable("there is no interface %s (have %s)", name, interfaceNames())
		}
		if len(peers) == 0 || !netdev.HoldsOnly(ifi) {
			return usable(ifi, peers, own)
		}
	}
	var chosen *net.Interface
	var via netip.Addr
	for _, peer := range peers {
		peer = peer.Unmap()
		if peer.IsLoopback() || local[peer.WithZone("")] != nil {
			continue
		}
		ifi, err := routeTo(peer, own)
		if err != nil {
			return nil, err
		}
		if chosen != nil && chosen.Index != ifi.Index {
			return nil, unavailable("%v is reached by %s and %v by %s: name one interface for all ranks (MCAST_IFACE)",
				via, chosen.Name, peer, ifi.Name)
		}
		chosen, via = ifi, peer
	}
	if chosen == nil {
		return loopback(peers)
	}
	return usable(chosen, peers, own)
}

// ownOf returns the first of some addresses that this host has. It is not valid if there is none.
func ownOf(addrs []netip.Addr, local map[netip.Addr]*net.Interface) netip.Addr {
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); local[a] != nil && !a.IsLoopback() {
			return a
		}
	}
	return netip.Addr{}
}

// Multicasts returns an error if an interface does no multicast.
func Multicasts(ifi *net.Interface) error {
	// Linux loops multicast on lo whether the flag is set or not.
	if ifi.Flags&(net.FlagMulticast|net.FlagLoopback) == 0 {
		return unavailable("interface %s does not do multicast (ip link set %s multicast on)", ifi.Name, ifi.Name)
	}
	return nil
}

// usable returns an interface if it is up, and this host has an address for it: own, whichever interface has that, or
// one of the interface's, of the version of peers.
func usable(ifi *net.Interface, peers []netip.Addr, own netip.Addr) (*net.Interface, error) {
	if ifi.Flags&net.FlagUp == 0 {
		return nil, unavailable("interface %s is down (ip link set %s up)", ifi.Name, ifi.Name)
	}
	if own.IsValid() {
		return ifi, nil
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil, fmt.Errorf("udp: addresses of %s: %w", ifi.Name, err)
	}
	for _, a := range addrs {
		if addr, ok := addrOf(a); ok && (len(peers) == 0 || addr.Is4() == peers[0].Unmap().Is4()) {
			return ifi, nil
		}
	}
	if len(peers) == 0 {
		return nil, unavailable("interface %s has no address", ifi.Name)
	}
	return nil, unavailable("interface %s has no %s address", ifi.Name, batch.FamilyOf(peers[0]).Name)
}

func loopback(peers []netip.Addr) (*net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("udp: list interfaces: %w", err)
	}
	for i := range all {
		if all[i].Flags&net.FlagLoopback != 0 {
			return usable(&all[i], peers, netip.Addr{})
		}
	}
	return nil, unavailable("all ranks are on this host, and it has no loopback interface")
}

// routeTo asks the routing table by which interface packets of an address leave.
func routeTo(peer, own netip.Addr) (*net.Interface, error) {
	route, err := netdev.RouteTo(peer, own)
	if err != nil {
		return nil, unavailable("%w", err)
	}
	ifi, err := net.InterfaceByIndex(route.Index)
	if err != nil {
		return nil, unavailable("the interface of the route to %v: %w", peer, err)
	}
	return ifi, nil
}

// localAddrs maps this host's addresses to their interfaces.
func localAddrs() (map[netip.Addr]*net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("udp: list interfaces: %w", err)
	}
	local := make(map[netip.Addr]*net.Interface)
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil {
			return nil, fmt.Errorf("udp: addresses of %s: %w", all[i].Name, err)
		}
		for _, a := range addrs {
			if addr, ok := addrOf(a); ok {
				local[addr] = &all[i]
			}
		}
	}
	return local, nil
}

func addrOf(a net.Addr) (netip.Addr, bool) {
	prefix, err := netip.ParsePrefix(a.String())
	return prefix.Addr().Unmap(), err == nil
}

func interfaceNames() string {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		return "none"
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

func unavailable(format string, args ...any) error {
	return fabric.Unavailable("udp: %w", fmt.Errorf(format, args...))
}
