package group

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// reach is a way by which ranks come to each other. All take the first that all of them offer.
type reach int

const (
	over4     reach = iota // IPv4
	over6                  // IPv6
	onLink6                // IPv6 within one link
	lastReach = onLink6
)

func reachOf(a netip.Addr) reach {
	switch {
	case a.Is4():
		return over4
	case a.IsLinkLocalUnicast():
		return onLink6
	}
	return over6
}

func (w reach) String() string {
	return [...]string{"IPv4", "IPv6", "IPv6 within its link"}[w]
}

// offers are the addresses at which a rank can be reached; one that is not valid it does not offer.
type offers [lastReach + 1]netip.Addr

// offer has a blob tell addresses: of each version one at most, as netdev.Addresses returns them.
func (b *blob) offer(addrs []netip.Addr) {
	for _, a := range addrs {
		if a.Is4() {
			b.Address = a.String()
		} else {
			b.Address6 = a.String()
		}
	}
}

// offers reads what offer wrote.
func (b *blob) offers() (o offers, err error) {
	for _, f := range []struct {
		text string
		is4  bool
	}{{b.Address, true}, {b.Address6, false}} {
		if f.text == "" {
			continue
		}
		a, err := netip.ParseAddr(f.text)
		if err != nil || a.Is4() != f.is4 || a.Is4In6() {
			return o, argument("blob of rank %d has the addresses %q and %q; want one of IPv4, one of IPv6, or both", b.Rank, b.Address, b.Address6)
		}
		o[reachOf(a)] = a
	}
	if o == (offers{}) {
		return o, argument("blob of rank %d has no address; want one of IPv4, one of IPv6, or both", b.Rank)
	}
	return o, nil
}

// best is the first of them.
func (o offers) best() (at netip.Addr, way reach) {
	for way, at := range o {
		if at.IsValid() {
			return at, reach(way)
		}
	}
	return at, way
}

// common returns the first way by which all ranks can be reached, or two ranks that have none.
func common(all []offers) (way reach, without [2]int, ok bool) {
	for way := range reach(len(offers{})) {
		ok := true
		for r := range all {
			ok = ok && all[r][way].IsValid()
		}
		if ok {
			return way, without, true
		}
	}
	share := func(a, b offers) bool {
		for w := range a {
			if a[w].IsValid() && b[w].IsValid() {
				return true
			}
		}
		return false
	}
	for r := range all {
		for other := range r {
			if !share(all[r], all[other]) {
				return 0, [2]int{other, r}, false
			}
		}
	}
	return 0, without, false
}

// meetAt fills in where ranks are reached: on one host by loopback, unless a rank asks for an interface, else by the
// ways that there are, of which the first is tried first.
func (a *agreement) meetAt(all []blob, offered []offers) error {
	candidates := make([][]netdev.Candidate, a.size)
	asked := false
	for r := range all {
		asked = asked || all[r].Asked
		a.asked = append(a.asked, all[r].Asked)
		a.hosts[r].addr, _ = offered[r].best()
		a.ports = append(a.ports, uint16(all[r].Port))
		candidates[r] = all[r].Candidates
	}
	if a.oneHost && !asked {
		// Whatever the family of other networks: by itself Linux does no multicast on lo over IPv6.
		loopback := batch.IPv4.Loopback
		if a.settings.Group.Is6() {
			loopback = batch.IPv6.Loopback
		}
		a.ways = []way{{addrs: slices.Repeat([]netip.Addr{loopback}, a.size)}}
	} else {
		a.ways = ways(a.hosts, offered, candidates)
	}
	if len(a.ways) == 0 {
		return a.noWay(offered)
	}
	for _, w := range a.ways {
		for r, at := range w.addrs {
			if linkLocal6 := at.Is6() && at.IsLinkLocalUnicast(); linkLocal6 {
				w.addrs[r] = at.WithZone(offered[a.rank][onLink6].Zone()) // a zone means something on its own host alone
			}
		}
	}
	a.use(0)
	return nil
}

// use has ranks come to each other by one of the ways.
func (a *agreement) use(number int) {
	w := &a.ways[number]
	a.addrs = make([]netip.AddrPort, a.size)
	for r := range a.addrs {
		a.addrs[r] = netip.AddrPortFrom(w.addrs[r], a.ports[r])
		if !a.oneHost {
			a.hosts[r].addr = w.addrs[r]
		}
	}
}

// at returns the addresses of all ranks by the way that is taken.
func (a *agreement) at() (addrs []netip.Addr) {
	for _, at := range a.addrs {
		addrs = append(addrs, at.Addr())
	}
	return addrs
}

// noFamily says that two ranks have no address of one kind.
func (a *agreement) noFamily(without [2]int, offered []offers) error {
	var what, text [2]string
	for i, r := range without {
		_, only := offered[r].best() // it has no other
		what[i] = fmt.Sprintf("%v alone", only)
		text[i] = fmt.Sprintf("rank %d, host %v, can be reached over %v alone", r, a.hosts[r], only)
	}
	return &MismatchError{Between: collective.Disagreement{Ranks: without, What: what}, Text: fmt.Sprintf(
		"%s, and %s: give the interface of one of them an address of the other's kind, or name interfaces that reach each other (MCAST_IFACE)", text[0], text[1])}
}

// drawnGroup returns the multicast group for a job, with room in its last four bits for subgroups: of
// the organisation-local block 239.192.0.0/14 (RFC 2365), or of the transient ones of a site, ff15::/16.
// There the last 32 bits make the Ethernet address, and are of those that hosts may take (RFC 3307).
func drawnGroup(is4 bool, job uint64) netip.Addr {
	j := job >> 1 // the lowest bit is always set
	if is4 {
		return netip.AddrFrom4([4]byte{239, 192 | byte(j>>16)&3, byte(j >> 8), byte(j) &^ 15})
	}
	b := [16]byte{0xff, 0x15}
	binary.BigEndian.PutUint64(b[4:], job)
	binary.BigEndian.PutUint32(b[12:], 1<<31|uint32(j)&^15) // the low half
	return netip.AddrFrom16(b)
}
