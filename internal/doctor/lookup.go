package doctor

import (
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// Link returns an interface by its name, or nil.
func (f *Facts) Link(name string) *Link {
	for i := range f.Links {
		if f.Links[i].Name == name {
			return &f.Links[i]
		}
	}
	return nil
}

// ChosenLink returns the interface that the library takes, or nil.
func (f *Facts) ChosenLink() *Link { return f.Link(f.Chosen.Name) }

// Family returns the version of IP that the library takes, IPv4 where there is no address.
func (f *Facts) Family() *batch.Family {
	if at, err := netip.ParseAddr(f.Chosen.Address); err == nil && at.Is6() {
		return batch.IPv6
	}
	return batch.IPv4
}

// onLoopback reports whether the library takes loopback, or no interface.
func (f *Facts) onLoopback() bool {
	l := f.ChosenLink()
	return l == nil || l.Loopback
}

// usable returns the names of the interfaces that ranks could use, but for loopback.
func (f *Facts) usable() (names []string) {
	for _, l := range f.Links {
		if l.Up && l.Carrier && !l.Loopback && len(l.IPv4) > 0 {
			names = append(names, l.Name)
		}
	}
	return names
}

// network returns the chosen interface's.
func (f *Facts) network() string {
	if l := f.ChosenLink(); l != nil && len(l.IPv4) > 0 {
		if p, err := netip.ParsePrefix(l.IPv4[0]); err == nil {
			return p.Masked().String()
		}
	}
	return "10.0.0.0/8"
}

// prefixes returns the addresses of an interface, of both kinds, with their networks.
func (l *Link) prefixes() (found []netip.Prefix) {
	for _, text := range slices.Concat(l.IPv4, l.IPv6) {
		if p, err := netip.ParsePrefix(text); err == nil {
			found = append(found, p)
		}
	}
	return found
}

// global6 returns an address of IPv6 that others can reach, if there is one.
func (l *Link) global6() string {
	for _, text := range l.IPv6 {
		p, err := netip.ParsePrefix(text)
		if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return text
		}
	}
	return ""
}

// Left returns how many bytes this process may still take, and what says so; 0 and no name if it is not known.
func (m *Memory) Left() (left int, by string) {
	if m.Limit > 0 && (m.Available == 0 || m.LimitLeft < m.Available) {
		return m.LimitLeft, "control group " + m.LimitBy
	}
	if m.Available > 0 {
		by = "the host"
	}
	return m.Available, by
}
