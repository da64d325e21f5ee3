package team

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Way is one by which ranks may come to each other: an address of each.
type Way struct {
	Addrs []netip.Addr
	mbps  int    // of the slowest link; 0: unknown
	net   string // that all are in; empty: the addresses of default routes
}

// mostNetworks bounds how many are tried beside the default routes.
const mostNetworks = 3

// ways returns the usable ways, the best first: the addresses of the hosts' default routes, then networks that all
// hosts are in. But a network goes before the default routes if all its links are known to be faster than theirs. A way
// in which ranks of different hosts have the same address is left out: a rank would reach its own host there.
func ways(hosts []Host, offered []offers, candidates [][]netdev.Candidate) []Way {
	var all, networks []Way
	_, of := HostsOf(hosts)
	oneHost := slices.Max(of) == 0
	add := func(list *[]Way, w Way) {
		usable := func(w Way) bool {
			return len(w.Addrs) == len(hosts) && distinct(hosts, w.Addrs) &&
				(oneHost || !slices.ContainsFunc(w.Addrs, netip.Addr.IsLoopback))
		}
		same := func(other Way) bool { return slices.Equal(w.Addrs, other.Addrs) }
		if usable(w) && !slices.ContainsFunc(all, same) && !slices.ContainsFunc(*list, same) {
			*list = append(*list, w)
		}
	}
	for by := range lastReach {
		add(&all, uplinks(by, offered, candidates))
	}
	for _, c := range candidates[0] {
		add(&networks, inNetwork(c.Net.Masked(), candidates))
	}
	slices.SortStableFunc(networks, func(a, b Way) int { return cmp.Compare(b.mbps, a.mbps) })
	networks = networks[:min(len(networks), mostNetworks)]
	if len(all) > 0 && all[0].mbps > 0 {
		slower := slices.IndexFunc(networks, func(w Way) bool { return w.mbps <= all[0].mbps })
		if slower < 0 {
			slower = len(networks)
		}
		all = slices.Concat(networks[:slower], all, networks[slower:])
	} else {
		all = append(all, networks...)
	}
	add(&all, uplinks(onLink6, offered, candidates))
	return all
}

// uplinks is the way of the hosts' default routes.
func uplinks(by reach, offered []offers, candidates [][]netdev.Candidate) (w Way) {
	for r := range offered {
		at := offered[r][by]
		if !at.IsValid() {
			return Way{}
		}
		mbps := 0
		for _, c := range candidates[r] {
			if c.Net.Addr() == at {
				mbps = c.Mbps
			}
		}
		w.take(r, at, mbps)
	}
	return w
}

// inNetwork is the way of a network; it has fewer addresses than ranks where some are not in it.
func inNetwork(net netip.Prefix, candidates [][]netdev.Candidate) Way {
	w := Way{net: net.String()}
	for r := range candidates {
		i := slices.IndexFunc(candidates[r], func(c netdev.Candidate) bool { return c.Net.Masked() == net })
		if i < 0 {
			return Way{}
		}
		w.take(r, candidates[r][i].Net.Addr(), candidates[r][i].Mbps)
	}
	return w
}

// take adds the address of the next rank.
func (w *Way) take(rank int, at netip.Addr, mbps int) {
	w.Addrs = append(w.Addrs, at)
	if rank == 0 || mbps < w.mbps {
		w.mbps = mbps
	}
}

func (w *Way) String() string {
	if w.net != "" {
		return "the network " + w.net
	}
	return "the addresses of their default routes"
}

// distinct reports whether no two hosts have the same address.
func distinct(ranks []Host, addrs []netip.Addr) bool {
	_, _, same := shared(ranks, addrs)
	return !same
}

// shared returns two ranks on different hosts that have the same address, if there are any.
func shared(ranks []Host, addrs []netip.Addr) (first, second int, same bool) {
	owner := map[netip.Addr]int{}
	for r, at := range addrs {
		at = at.WithZone("")
		other, taken := owner[at]
		if taken && !netdev.SameHost(ranks[other].ID, ranks[r].ID) {
			return other, r, true
		}
		owner[at] = r
	}
	return 0, 0, false
}

// noWay says why ranks cannot come to each other.
func (a *Plan) noWay(offered []offers) error {
	by, without, ok := common(offered)
	if !ok {
		return a.noFamily(without, offered)
	}
	addrs := make([]netip.Addr, a.Size)
	for r := range offered {
		if addrs[r] = offered[r][by]; addrs[r].IsLoopback() {
			why := "it has no default route, so set MCAST_IFACE to the interface that reaches the others"
			if a.Asked[r] {
				why = "its MCAST_IFACE reaches no other host: name the interface that does, or unset it"
			}
			return fmt.Errorf("ranks are on several hosts, but rank %d (host %s) only knows itself as %v: %s",
				r, cmp.Or(a.Hosts[r].Name, a.Hosts[r].ID), addrs[r], why)
		}
	}
	first, second, _ := shared(a.Hosts, addrs)
	return &MismatchError{
		Between: collective.Disagreement{
			Ranks: [2]int{first, second}, What: [2]string{addrs[first].String(), addrs[second].String()},
		},
		Text: fmt.Sprintf("rank %d and rank %d are on different hosts, %v and %v, that both have the address %v on their "+
			"default route, "+
			"and there is no network that all hosts are in: set MCAST_IFACE to the interface that reaches the others",
			first, second, a.Hosts[first], a.Hosts[second], addrs[first]),
	}
}
