package world

import (
	"math/rand/v2"
	"slices"
)

// beside returns the ranks on the host of one, it among them.
func (s *Scenario) beside(rank int) (ranks []int) {
	for r := range s.Net.Ranks {
		if s.Net.place(r) == s.Net.place(rank) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// hosts returns the ranks of each host that has some, in the order in which hosts come first.
func (s *Scenario) hosts() (all [][]int) {
	number := map[int]int{}
	for r := range s.Net.Ranks {
		h, known := number[s.Net.place(r)]
		if !known {
			h = len(all)
			number[s.Net.place(r)] = h
			all = append(all, nil)
		}
		all[h] = append(all[h], r)
	}
	return all
}

// twoLevels returns the hosts where the group works on two levels: several, some with several ranks. Else nil.
func (s *Scenario) twoLevels() [][]int {
	hosts := s.hosts()
	if s.Flat || s.Fabric != "auto" || len(hosts) == 1 || len(hosts) == s.Net.Ranks {
		return nil
	}
	return hosts
}

// surplus reports whether a rank is in no column: its host has more ranks before it than another one has.
func (s *Scenario) surplus(rank int) bool {
	columns := s.Net.Ranks
	for _, ranks := range s.twoLevels() {
		columns = min(columns, len(ranks))
	}
	return slices.Index(s.beside(rank), rank) >= columns
}

// fitHosts mends what a change has left dangling, and reports whether the rest can be run. Rank 0,
// where all meet, is on host 0.
func (s *Scenario) fitHosts() bool {
	if len(s.Net.On) == 0 {
		return true
	}
	s.Net.On = s.Net.On[:min(len(s.Net.On), s.Net.Ranks)]
	return s.Net.On[0] == 0 &&
		!slices.ContainsFunc(s.Net.On, func(host int) bool { return host < 0 || host >= len(s.Net.On) })
}

// enlarge makes, in some seeds with hosts of several ranks, one call so large that it goes from level to
// level in several segments.
func (s *Scenario) enlarge(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x7365676d656e74))}
	if c := &s.Calls[d.IntN(len(s.Calls))]; s.twoLevels() != nil && d.chance(0.2) && c.Kind != Barrier {
		c.Bytes = 300_000 + d.IntN(1_500_000)
	}
}

// How ranks are dealt to hosts.
const (
	hostByHost = iota
	byTurns
	shuffled
	uneven // some hosts have more than others
)

// together draws, in a share of all seeds, that ranks are on fewer hosts than there are of them. It
// draws from a source of its own, so that all else is as it was.
func (s *Scenario) together(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x686f737473))}
	if d.chance(0.5) {
		return
	}
	hosts, each := of(d, 1, 2, 2, 3, 4), 2+d.IntN(3)
	s.Net.Ranks = hosts * each
	deal := of(d, hostByHost, byTurns, shuffled, uneven, uneven)
	for r := range s.Net.Ranks {
		on := r / each
		switch deal {
		case byTurns:
			on = r % hosts
		case uneven:
			on = d.IntN(hosts)
		}
		s.Net.On = append(s.Net.On, on)
	}
	if deal == shuffled {
		d.Shuffle(s.Net.Ranks, func(i, k int) { s.Net.On[i], s.Net.On[k] = s.Net.On[k], s.Net.On[i] })
	}
	number := map[int]int{} // from 0 on, as they appear
	for r, host := range s.Net.On {
		if _, known := number[host]; !known {
			number[host] = len(number)
		}
		s.Net.On[r] = number[host]
	}
	s.Fabric = of(d, "auto", "auto", "auto", "auto", "udp")
	s.ShmSlots, s.ShmChunk = 2+d.IntN(7), of(d, 0, 4<<10, 16<<10)
	s.Flat = d.chance(0.15)
	s.Racks = of(d, 0, 0, 2, 3)
}
