package fabrics

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// addRails has multicast go by all interfaces that MCAST_IFACE names: the subgroups take them by turns, and each
// interface gets at least one. The addresses are of the version by which ranks reach each other.
func addRails(a *team.Plan, n hostnet.Network, o *udp.Options) error {
	names := a.Settings.Interfaces()
	is4 := a.Addrs[0].Addr().Is4()
	for number := range a.Rails[a.Rank] {
		sources := make([]netip.Addr, a.Size)
		for r, rails := range a.Rails {
			i := slices.IndexFunc(rails[number], func(at netip.Addr) bool { return at.Is4() == is4 })
			if i < 0 {
				return fmt.Errorf("interface %d of MCAST_IFACE at rank %d, host %v, has the addresses %v, none of the kind of "+
					"%v: give it one, or name another interface",
					number+2, r, a.Hosts[r], rails[number], a.Addrs[r].Addr())
			}
			sources[r] = rails[number][i]
		}
		ifi, err := n.Multicast(names[number+1], sources)
		if err != nil {
			return err
		}
		o.Rails = append(o.Rails, udp.Rail{Interface: ifi, Sources: sources})
	}
	o.Subgroups = a.Subgroups()
	return nil
}
