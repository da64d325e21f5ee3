package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is how packets to an address leave this host.
type Route struct {
	Index int        // of the interface
	From  netip.Addr // the source address of those packets
	Own   bool       // the address is one of this host's
}

// RouteTo asks the routing tables how packets to an address leave, from a source address if that is valid.
func RouteTo(to, from netip.Addr) (Route, error) {
	return routeBy(to, &netlink.RouteGetOptions{SrcAddr: ipOf(from)})
}

// leadsTo reports whether the routing tables have a route to an address by this very interface, or one of several
// next hops.
func leadsTo(to netip.Addr, ifi *net.Interface) bool {
	r, err := lookUp(to, &netlink.RouteGetOptions{OifIndex: ifi.Index, FIBMatch: true})
	return err == nil && slices.Contains(hops(r), ifi.Index)
}

// otherHop returns another interface than the given one by which packets to an address leave: the route's, or one of
// several next hops, among which the kernel chooses for each connection; 0: there is none.
func otherHop(to, from netip.Addr, ifi *net.Interface) int {
	r, err := lookUp(to, &netlink.RouteGetOptions{SrcAddr: ipOf(from), FIBMatch: true})
	if err != nil {
		return 0
	}
	for _, index := range hops(r) {
		if index != ifi.Index {
			return index
		}
	}
	return 0
}

// Elsewhere says that packets from an address of this host to another host leave by another interface than the one that
// has the address; empty: they do not, or nobody knows.
func Elsewhere(from, to netip.Addr) string {
	if from.IsLoopback() || to.IsLoopback() {
		return ""
	}
	route, err := RouteTo(to, from)
	all, _ := net.Interfaces() // none: nobody knows
	i := slices.IndexFunc(all, func(ifi net.Interface) bool { return has(&ifi, from) })
	if err != nil || route.Own || i < 0 || HoldsOnly(&all[i]) || route.Index == all[i].Index {
		return ""
	}
	return fmt.Sprintf("what goes from %v to %v leaves by %s, and %s has %v (ip route get %v from %v)",
		from, to, nameOf(route.Index), all[i].Name, from, to, from)
}

// has reports whether an address is one of an interface's.
func has(ifi *net.Interface, addr netip.Addr) bool {
	addrs, _ := ifi.Addrs() // it went away just now: it has none
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr.Unmap().WithZone("")
	})
}

// hops returns the interfaces of a route's next hops.
func hops(r *netlink.Route) (all []int) {
	if r.LinkIndex != 0 || len(r.MultiPath) == 0 {
		return []int{r.LinkIndex}
	}
	for _, hop := range r.MultiPath {
		all = append(all, hop.LinkIndex)
	}
	return all
}

func routeBy(to netip.Addr, o *netlink.RouteGetOptions) (Route, error) {
	r, err := lookUp(to, o)
	if err != nil {
		return Route{}, err
	}
	return Route{Index: leaves(r), From: addrOf(r.Src), Own: r.Type == unix.RTN_LOCAL}, nil
}

func lookUp(to netip.Addr, o *netlink.RouteGetOptions) (*netlink.Route, error) {
	if ifi, err := net.InterfaceByName(to.Zone()); err == nil && o.OifIndex == 0 {
		o.OifIndex = ifi.Index
	}
	found, err := netlink.RouteGetWithOptions(ipOf(to), o)
	if err == nil && len(found) == 0 {
		err = unix.EHOSTUNREACH
	}
	if err != nil {
		return nil, fmt.Errorf("no route to %v: %w", to, err)
	}
	return &found[0], nil
}

// leaves returns the index of the interface by which a route leaves: the first, where there are several.
func leaves(r *netlink.Route) int { return hops(r)[0] }

// defaultRoutes returns the default routes of a version that there are, one of each, IPv4's first. Where routing to
// the host is done, their source addresses are on lo.
func defaultRoutes(v Version) (found []Route) {
	for _, one := range []Version{IPv4, IPv6} {
		if v != Any && v != one {
			continue
		}
		if r, ok := defaultRoute(one); ok {
			found = append(found, r)
		}
	}
	return found
}

// somewhere are addresses of nobody (RFC 5737, RFC 3849), to be asked for where a gateway cannot be.
var somewhere = map[Version]netip.Addr{IPv4: netip.MustParseAddr("192.0.2.1"), IPv6: netip.MustParseAddr("2001:db8::1")}

// defaultRoute returns the default route of one version: from the main table, or else from other tables, which it asks
// for an address of nobody.
func defaultRoute(v Version) (Route, bool) {
	family := unix.AF_INET
	if v == IPv6 {
		family = unix.AF_INET6
	}
	all, _ := netlink.RouteList(nil, family) // none is found then
	all = slices.DeleteFunc(all, func(r netlink.Route) bool {
		if r.Type != unix.RTN_UNICAST || !everywhere(r.Dst) {
			return true // before anything is asked of it: there may be thousands
		}
		ifi, err := net.InterfaceByIndex(leaves(&r))
		return err != nil || ifi.Flags&net.FlagUp == 0
	})
	if len(all) == 0 {
		r, err := RouteTo(somewhere[v], netip.Addr{})
		return r, err == nil && !r.Own
	}
	best := slices.MinFunc(all, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	return Route{Index: leaves(&best), From: sourceOf(&best, v)}, true
}

// everywhere reports whether a destination is all addresses.
func everywhere(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	ones, _ := dst.Mask.Size()
	return ones == 0
}

// sourceOf returns the source address of packets by a default route. It is not valid if there is none.
func sourceOf(r *netlink.Route, v Version) netip.Addr {
	if from := addrOf(r.Src); from.IsValid() {
		return from
	}
	to := somewhere[v]
	if gateway := addrOf(r.Gw); gateway.IsValid() && v.Has(gateway) && !gateway.IsLinkLocalUnicast() {
		to = gateway
	}
	by, err := routeBy(to, &netlink.RouteGetOptions{OifIndex: leaves(r)})
	if err != nil {
		return netip.Addr{}
	}
	return by.From
}

func addrOf(ip net.IP) netip.Addr {
	at, _ := netip.AddrFromSlice(ip) // not valid if there is none
	return at.Unmap()
}

func ipOf(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.WithZone("").AsSlice()
}

// HoldsOnly reports whether packets to other hosts never leave by an interface, which yet may hold this host's
// address: loopback, and dummies.
func HoldsOnly(ifi *net.Interface) bool {
	if ifi.Flags&net.FlagLoopback != 0 {
		return true
	}
	l, err := netlink.LinkByIndex(ifi.Index)
	return err == nil && l.Type() == "dummy"
}
