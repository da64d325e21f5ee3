package netdev

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Version of IP that an address is wanted of.
type Version int

// The versions; Any takes IPv4 first.
const (
	Any  Version = 0
	IPv4 Version = 4
	IPv6 Version = 6
)

// Has reports whether an address is of the version.
func (v Version) Has(a netip.Addr) bool { return v == Any || a.Is4() == (v == IPv4) }

// address is what an interface may lack.
func (v Version) address() string {
	if v == Any {
		return "address"
	}
	return fmt.Sprintf("IPv%d address", v)
}

// Addresses returns the addresses of a version of an interface by which others can reach it: of IPv4 one at most,
// then one of IPv6. One that holds on its link alone comes only where there is no other of its
// version, and one of IPv6 only where there is no other at all; the interface is its zone. The source address of the
// default route is the interface's by which that leaves, whichever has it.
func Addresses(ifi *net.Interface, v Version) []netip.Addr {
	routes := defaultRoutes(v)
	l := linkOf(ifi, v, temporary())
	l.lend(routes)
	return l.best(sources(routes, ifi.Index)...)
}

// iface is an interface with its addresses of a version.
type iface struct {
	net.Interface
	addrs []netip.Addr // lasting ones
	all   []netip.Addr
	nets  []netip.Prefix // addrs with the networks that they are in
}

// linkOf reads the addresses of an interface.
func linkOf(ifi *net.Interface, v Version, fleeting map[netip.Addr]bool) iface {
	l := iface{Interface: *ifi}
	addrs, _ := ifi.Addrs() // it went away just now: it has none
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if at := p.Addr().Unmap(); err == nil && v.Has(at) {
			l.all = append(l.all, at)
			if !fleeting[at] {
				l.addrs = append(l.addrs, at)
				l.nets = append(l.nets, netip.PrefixFrom(at, p.Bits()))
			}
		}
	}
	return l
}

// linkLocal6 reports whether an address needs a zone.
func linkLocal6(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// Near returns an address told by another host as this host must use it: an address that holds on a link alone gets
// this host's interface as its zone, not the other host's.
func Near(at netip.AddrPort, ifi string) netip.AddrPort {
	if !linkLocal6(at.Addr()) {
		return at
	}
	return netip.AddrPortFrom(at.Addr().WithZone(ifi), at.Port())
}

// best picks the result of Addresses. Preferred addresses go before others of their version, and loopback's count only
// where there are no others.
func (l iface) best(preferred ...netip.Addr) (found []netip.Addr) {
	addrs := slices.Clone(l.addrs)
	if slices.ContainsFunc(addrs, beyondLoopback) {
		addrs = slices.DeleteFunc(addrs, netip.Addr.IsLoopback)
	}
	for _, v := range []Version{IPv4, IPv6} {
		of := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !v.Has(a) })
		first := slices.IndexFunc(of, func(a netip.Addr) bool { return slices.Contains(preferred, a) && !linkLocal6(a) })
		if first < 0 {
			first = slices.IndexFunc(of, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() })
		}
		switch {
		case first >= 0:
			found = append(found, of[first])
		case len(of) > 0 && v == IPv4:
			found = append(found, of[0])
		case len(of) > 0 && len(found) == 0:
			found = append(found, of[0].WithZone(l.Name))
		}
	}
	return found
}

// Uplink returns the interface of the default route and its Addresses of a version, those first from which packets
// leave; or, on a network without one, those of the only interface that is up and has any. It is nil if there is
// neither.
func Uplink(v Version) (*net.Interface, []netip.Addr) {
	routes := defaultRoutes(v)
	all, _ := links(v, routes) // none is found then
	for _, r := range routes {
		i := slices.IndexFunc(all, func(l iface) bool { return l.Index == r.Index && len(l.all) > 0 })
		if i < 0 {
			continue
		}
		if addrs := all[i].best(sources(routes, r.Index)...); len(addrs) > 0 {
			return &all[i].Interface, addrs
		}
	}
	up := slices.DeleteFunc(all, func(l iface) bool {
		return l.Flags&net.FlagUp == 0 || !slices.ContainsFunc(l.addrs, beyondLoopback)
	})
	// Every interface that is up has an address of its link.
	far := slices.DeleteFunc(slices.Clone(up), func(l iface) bool {
		return !slices.ContainsFunc(l.addrs, func(a netip.Addr) bool { return reaches(a) && beyondLoopback(a) })
	})
	if len(far) > 0 {
		up = far
	}
	if len(up) > 1 { // an address that no link is bound to counts where no other does
		up = slices.DeleteFunc(up, func(l iface) bool { return HoldsOnly(&l.Interface) })
	}
	if len(up) != 1 {
		return nil, nil
	}
	return &up[0].Interface, up[0].best()
}

// sources are the source addresses of the routes by an interface.
func sources(routes []Route, index int) (found []netip.Addr) {
	for _, r := range routes {
		if r.Index == index {
			found = append(found, r.From)
		}
	}
	return found
}

func beyondLoopback(a netip.Addr) bool { return !a.IsLoopback() }

func reaches(a netip.Addr) bool { return !linkLocal6(a) }

// DefaultRouteAddr returns this host's first address of Uplink. It is not valid if there is none.
func DefaultRouteAddr(v Version) netip.Addr {
	if _, addrs := Uplink(v); len(addrs) > 0 {
		return addrs[0]
	}
	return netip.Addr{}
}

// temporary returns the IPv6 addresses of this host that do not last, those of RFC 8981, which change
// each day, or that cannot be used yet or any more: the kernel asks the link whether anybody has
// them, or somebody has.
func temporary() map[netip.Addr]bool {
	const temporary, failed, deprecated, tentative = 0x01, 0x08, 0x20, 0x40 // IFA_F_* of linux/if_addr.h
	text, _ := os.ReadFile("/proc/thread-self/net/if_inet6")                // there is none without IPv6
	found := map[netip.Addr]bool{}
	for line := range strings.Lines(string(text)) {
		// The address; in hexadecimal the index, length of prefix, scope, flags; the name.
		fields := strings.Fields(line)
		if len(fields) < 6 || len(fields[0]) != 32 {
			continue
		}
		flags, err := strconv.ParseUint(fields[4], 16, 32)
		if err != nil || flags&(temporary|failed|deprecated|tentative) == 0 {
			continue
		}
		high, _ := strconv.ParseUint(fields[0][:16], 16, 64) // as the kernel writes it
		low, _ := strconv.ParseUint(fields[0][16:], 16, 64)
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], high)
		binary.BigEndian.PutUint64(b[8:], low)
		found[netip.AddrFrom16(b)] = true
	}
	return found
}
