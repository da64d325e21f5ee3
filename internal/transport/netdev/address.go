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
// version, and one of IPv6 only where there is no other at all; the interface is its zone.
func Addresses(ifi *net.Interface, v Version) []netip.Addr {
	return linkOf(ifi, v, fleeting()).best(netip.Addr{})
}

// link is an interface with its addresses of a version.
type link struct {
	net.Interface
	addrs []netip.Addr // those that last
	all   []netip.Addr
	nets  []netip.Prefix // addrs with the networks that they are in
}

// linkOf reads the addresses of an interface.
func linkOf(ifi *net.Interface, v Version, fleeting map[netip.Addr]bool) link {
	l := link{Interface: *ifi}
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

// Near returns an address that another host has told as this one finds it: one that holds on a link
// alone by the interface, whatever the other calls its own.
func Near(at netip.AddrPort, ifi string) netip.AddrPort {
	if !linkLocal6(at.Addr()) {
		return at
	}
	return netip.AddrPortFrom(at.Addr().WithZone(ifi), at.Port())
}

// best picks what Addresses returns; one that is preferred goes before others of its version.
func (l link) best(preferred netip.Addr) (found []netip.Addr) {
	for _, v := range []Version{IPv4, IPv6} {
		of := slices.DeleteFunc(slices.Clone(l.addrs), func(a netip.Addr) bool { return !v.Has(a) })
		switch i := slices.IndexFunc(of, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() }); {
		case slices.Contains(of, preferred):
			found = append(found, preferred)
		case i >= 0:
			found = append(found, of[i])
		case len(of) > 0 && v == IPv4:
			found = append(found, of[0])
		case len(of) > 0 && len(found) == 0:
			found = append(found, of[0].WithZone(l.Name))
		}
	}
	return found
}

// Uplink returns the interface of the default route and its Addresses of a version; or, on a network
// without one, those of the only interface that is up and has any. It is nil if there is neither.
func Uplink(v Version) (*net.Interface, []netip.Addr) {
	all, _ := links(v) // none is found then
	at := routed(v)
	for _, l := range all {
		if at.IsValid() && slices.Contains(l.all, at) {
			return &l.Interface, l.best(at)
		}
	}
	up := slices.DeleteFunc(all, func(l link) bool {
		return l.Flags&net.FlagUp == 0 || l.Flags&net.FlagLoopback != 0 || len(l.addrs) == 0
	})
	// Every interface that is up has an address of its link.
	far := slices.DeleteFunc(slices.Clone(up), func(l link) bool { return !slices.ContainsFunc(l.addrs, reaches) })
	if len(far) > 0 {
		up = far
	}
	if len(up) != 1 {
		return nil, nil
	}
	return &up[0].Interface, up[0].best(netip.Addr{})
}

func reaches(a netip.Addr) bool { return !linkLocal6(a) }

// DefaultRouteAddr returns this host's first address of Uplink. It is not valid if there is none.
func DefaultRouteAddr(v Version) netip.Addr {
	if _, addrs := Uplink(v); len(addrs) > 0 {
		return addrs[0]
	}
	return netip.Addr{}
}

// routed asks the routing table for the address that this host has on its default route. Connecting
// a datagram socket sends nothing, and these are nobody (RFC 5737, RFC 3849).
func routed(v Version) netip.Addr {
	for _, nobody := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		to := netip.MustParseAddrPort(nobody)
		if !v.Has(to.Addr()) {
			continue
		}
		if conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err == nil {
			defer func() { _ = conn.Close() }()
			return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
		}
	}
	return netip.Addr{}
}

// fleeting returns the IPv6 addresses of this host that do not last, those of RFC 8981, which change
// each day, or that cannot be used yet or any more: the kernel asks the link whether anybody has
// them, or somebody has.
func fleeting() map[netip.Addr]bool {
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
