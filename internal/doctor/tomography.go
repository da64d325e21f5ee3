package doctor

import "slices"

// reading is one direction between two hosts, and whether its measurement is bad.
type reading struct {
	from, to int
	bad      bool
}

// cause is where readings that are bad have their origin.
type cause struct {
	hosts []int // one; or several that share a port of a switch; empty: everywhere, or a pair
	in    bool  // packets to them are bad
	out   bool  // packets from them are bad
	pair  [2]int
	all   bool // all packets are bad
}

// tomography concludes from readings between pairs of hosts which host, direction or shared port
// is bad, with as few causes as explain all: a host that nothing reaches is one bad host, and not a
// bad link of each of the others. What no host explains are pairs. A host's direction is taken for
// bad if so large a share of its readings is.
//
// It is what Hostping does inside of a host (NSDI '23), between hosts: each reading crosses several
// parts, and the parts that all bad readings have in common, and good ones have not, are to blame.
func tomography(n int, readings []reading, enough float64) (causes []cause) {
	left := slices.DeleteFunc(slices.Clone(readings), func(r reading) bool { return !r.bad })
	if len(left) == 0 {
		return nil
	}
	if len(left) == len(readings) && len(left) > 1 {
		return []cause{{all: true}}
	}
	sets := suspects(n, readings)
	for {
		best, most := cause{}, 1 // one reading is a pair
		for _, hosts := range sets {
			for _, in := range []bool{true, false} {
				c := cause{hosts: hosts, in: in, out: !in}
				if explained := c.explains(left); explained > most && c.share(readings) >= enough {
					best, most = c, explained
				}
			}
		}
		if best.hosts == nil {
			break
		}
		left = slices.DeleteFunc(left, best.crossed)
		causes = append(causes, best)
	}
	causes = bothWays(causes)
	for _, r := range left {
		causes = append(causes, cause{pair: [2]int{r.from, r.to}})
	}
	return causes
}

// crossed reports whether a reading passes the part that the cause is about.
func (c *cause) crossed(r reading) bool {
	from, to := slices.Contains(c.hosts, r.from), slices.Contains(c.hosts, r.to)
	return c.in && to && !from || c.out && from && !to
}

// explains counts the readings that the cause explains.
func (c *cause) explains(bad []reading) (n int) {
	for _, r := range bad {
		if c.crossed(r) {
			n++
		}
	}
	return n
}

// share returns which share is bad of those readings that would be, were it the cause.
func (c *cause) share(readings []reading) float64 {
	bad, all := 0, 0
	for _, r := range readings {
		if c.crossed(r) {
			all++
			if r.bad {
				bad++
			}
		}
	}
	if all == 0 {
		return 0
	}
	return float64(bad) / float64(all)
}

// suspects are the sets of hosts that may be to blame: each host alone, and each set of hosts with good readings among
// themselves and bad ones with the others. The largest such set counts as the rest, and is no suspect.
func suspects(n int, readings []reading) (sets [][]int) {
	for h := range n {
		sets = append(sets, []int{h})
	}
	well := make(map[[2]int]bool)
	for _, r := range readings {
		key := [2]int{min(r.from, r.to), max(r.from, r.to)}
		was, seen := well[key]
		well[key] = !r.bad && (was || !seen)
	}
	island := make([]int, n) // of each host, named by its lowest
	for h := range n {
		island[h] = h
	}
	for changed := true; changed; {
		changed = false
		for key, is := range well {
			if low := min(island[key[0]], island[key[1]]); is && island[key[0]] != island[key[1]] {
				island[key[0]], island[key[1]], changed = low, low, true
			}
		}
	}
	members := make([][]int, n)
	largest := 0
	for h, low := range island {
		members[low] = append(members[low], h)
		if len(members[low]) > len(members[largest]) {
			largest = low
		}
	}
	for low, hosts := range members {
		if low != largest && len(hosts) > 1 {
			sets = append(sets, hosts)
		}
	}
	return sets
}

// bothWays makes one cause of two that are about the directions of the same hosts.
func bothWays(causes []cause) (merged []cause) {
	for _, c := range causes {
		i := slices.IndexFunc(merged, func(o cause) bool { return slices.Equal(o.hosts, c.hosts) })
		if i < 0 {
			merged = append(merged, c)
			continue
		}
		merged[i].in, merged[i].out = true, true
	}
	return merged
}
