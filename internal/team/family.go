package team

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
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

// meetAt fills in where ranks are reached: on one host by loopback, unless a rank asks for an interface, else by one of
// several ways, which are tried in order.
func (a *Plan) meetAt(all []Blob, offered []offers) error {
	candidates := make([][]netdev.Candidate, a.Size)
	asked := false
	for r := range all {
		asked = asked || all[r].Asked
		a.Asked = append(a.Asked, all[r].Asked)
		a.Hosts[r].Addr, _ = offered[r].best()
		a.Ports = append(a.Ports, uint16(all[r].Port))
		candidates[r] = all[r].Candidates
	}
	if a.OneHost && !asked {
		// The family of other networks does not matter here: by itself Linux does no multicast on lo over IPv6.
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if a.Settings.Group.Is6() {
			loopback = netip.IPv6Loopback()
		}
		a.Ways = []Way{{Addrs: slices.Repeat([]netip.Addr{loopback}, a.Size)}}
	} else {
		a.Ways = ways(a.Hosts, offered, candidates)
	}
	if len(a.Ways) == 0 {
		return a.noWay(offered)
	}
	for _, w := range a.Ways {
		for r, at := range w.Addrs {
			if linkLocal6 := at.Is6() && at.IsLinkLocalUnicast(); linkLocal6 {
				w.Addrs[r] = at.WithZone(offered[a.Rank][onLink6].Zone()) // a zone means something on its own host alone
			}
		}
	}
	a.takeWay(0)
	return nil
}

// ByWay returns the plan with which ranks come to each other by one of the ways.
func (a *Plan) ByWay(number int) *Plan {
	b := *a
	b.Hosts = slices.Clone(a.Hosts)
	b.takeWay(number)
	return &b
}

func (a *Plan) takeWay(number int) {
	w := &a.Ways[number]
	a.Addrs = make([]netip.AddrPort, a.Size)
	for r := range a.Addrs {
		a.Addrs[r] = netip.AddrPortFrom(w.Addrs[r], a.Ports[r])
		if !a.OneHost {
			a.Hosts[r].Addr = w.Addrs[r]
		}
	}
}

// Addresses returns the addresses of all ranks by the way that is taken.
func (a *Plan) Addresses() (addrs []netip.Addr) {
	for _, at := range a.Addrs {
		addrs = append(addrs, at.Addr())
	}
	return addrs
}

// noFamily says that two ranks have no address of one kind.
func (a *Plan) noFamily(without [2]int, offered []offers) error {
	var what, text [2]string
	for i, r := range without {
		_, only := offered[r].best() // it has no other
		what[i] = fmt.Sprintf("%v alone", only)
		text[i] = fmt.Sprintf("rank %d, host %v, can be reached over %v alone", r, a.Hosts[r], only)
	}
	return &MismatchError{Between: collective.Disagreement{Ranks: without, What: what}, Text: fmt.Sprintf(
		"%s, and %s: give the interface of one of them an address of the other's kind, or name interfaces that reach each "+
			"other (MCAST_IFACE)", text[0], text[1])}
}

// drawnGroup returns the multicast group for a job, with room in its last four bits for subgroups: in the
// organisation-local block 239.192.0.0/14 (RFC 2365), or among the transient groups of a site, ff15::/16. In an IPv6
// group the last 32 bits make the Ethernet address, and lie in the range that hosts may take (RFC 3307).
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
