package netdev

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// MostCandidates bounds what a host offers: containers may have left it hundreds of interfaces.
const MostCandidates = 8

// Candidate is an address by which others may reach this host.
type Candidate struct {
	Net  netip.Prefix // the address and the network that it is in
	Mbps int          // speed of its hardware; 0: it has none, or the kernel does not know
}

func (c Candidate) same(other Candidate) bool { return c.Net.Addr() == other.Net.Addr() }

// String is what MarshalText writes.
func (c Candidate) String() string { return fmt.Sprintf("%v %d", c.Net, c.Mbps) }

// MarshalText implements encoding.TextMarshaler.
func (c Candidate) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Candidate) UnmarshalText(text []byte) error {
	var prefix string
	if _, err := fmt.Sscanf(string(text), "%s %d", &prefix, &c.Mbps); err != nil {
		return fmt.Errorf("netdev: %.60q is not an address with its network and a speed: %w", text, err)
	}
	net, err := netip.ParsePrefix(prefix)
	if err != nil || c.Mbps < 0 {
		return fmt.Errorf("netdev: %.60q is not an address with its network and a speed", text)
	}
	c.Net = net
	return nil
}

// Candidates returns the addresses of a version of all interfaces that are up, 8 at most, the
// likeliest to reach other hosts first: the address of the default route, addresses of hardware,
// addresses of virtual interfaces (bridges of containers have the same ones on every host).
// Loopback and addresses that hold on a link alone are left out.
func Candidates(v Version) []Candidate {
	h, err := thisHost(v)
	if err != nil {
		return nil
	}
	return h.candidates()
}

func (h host) candidates() (found []Candidate) {
	links := slices.DeleteFunc(slices.Clone(h.interfaces), func(l iface) bool {
		return h.usable(l, false) != nil || h.classOf(l) == loopback
	})
	slices.SortStableFunc(links, func(a, b iface) int {
		return cmp.Or(h.classOf(a)-h.classOf(b), h.distance(a)-h.distance(b), cmp.Compare(a.Index, b.Index))
	})
	for _, l := range links {
		c := Candidate{}
		if mbps, known := h.speed(l.Name); known && h.hardware(l.Name) {
			c.Mbps = mbps
		}
		for _, c.Net = range l.nets {
			if !c.Net.Addr().IsLinkLocalUnicast() && !slices.ContainsFunc(found, c.same) {
				found = append(found, c)
			}
		}
	}
	return found[:min(len(found), MostCandidates)]
}
