package team

import (
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Host is where ranks run, as others know it.
type Host struct {
	ID, Name string
	user     string // netdev.UserID of the rank
	Addr     netip.Addr
	place    string // in the network, as MCAST_TOPOLOGY says
}

// String names the host for the people who look after it.
func (h Host) String() string {
	if h.Name == "" {
		return h.Addr.String()
	}
	return h.Name + " (" + h.Addr.String() + ")"
}

// HostsOf numbers the hosts of ranks, in the order in which they come first.
func HostsOf(ranks []Host) (hosts []Host, of []int) {
	of = make([]int, len(ranks))
	for r, h := range ranks {
		of[r] = slices.IndexFunc(hosts, func(other Host) bool { return netdev.SameHost(other.ID, h.ID) })
		if of[r] < 0 {
			of[r] = len(hosts)
			hosts = append(hosts, h)
		}
	}
	return hosts, of
}

// Neighbours are the ranks that this one exchanges control messages with.
func (a *Plan) Neighbours() []int {
	all := topology.Graph{Rank: a.Column.Own, Size: a.Column.Size(), Order: topology.NewOrder(a.Ring)}.Neighbours()
	for i, index := range all {
		all[i] = a.Column.Ranks[index]
	}
	return all
}
