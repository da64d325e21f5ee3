package team

import "slices"

// ringOf is the order of ranks for data that go from rank to rank: the ranks of a host one after another, and so the
// hosts of a rack, the racks of a row and so on, as MCAST_TOPOLOGY says. Relayed data then enter and leave each of them
// once. Hosts without such a part of the network stay in the order of ranks.
func ringOf(ranks []Host) []int {
	hosts, of := HostsOf(ranks)
	first := map[string]int{}         // host in each part of the network
	ways := make([][]int, len(hosts)) // to each host: the first host of all parts that it is in
	for h := range hosts {
		place := hosts[h].place + "/"
		for i, c := range place {
			if c != '/' {
				continue
			}
			if _, known := first[place[:i]]; !known {
				first[place[:i]] = h
			}
			ways[h] = append(ways[h], first[place[:i]])
		}
		ways[h] = append(ways[h], h)
	}
	ring := make([]int, len(ranks))
	for r := range ring {
		ring[r] = r
	}
	slices.SortStableFunc(ring, func(x, y int) int { return slices.Compare(ways[of[x]], ways[of[y]]) })
	return ring
}

// RingRanks is the ring in ranks: of a column where there are nodes, else of all.
func (a *Plan) RingRanks() []int {
	all := make([]int, len(a.Ring))
	for i, index := range a.Ring {
		all[i] = a.Column.Ranks[index]
	}
	return all
}
