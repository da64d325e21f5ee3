package fabrics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/team"
)

// unheardText says between which ranks multicast does not pass, as far as that is readable: pairs are
// from, to. A host that hears no other one, or is heard by none, is named alone, and not each of its
// paths: it is that host, or its switch port, which has to be looked at.
func unheardText(pairs [][2]int, ranks []team.Host) string {
	hosts, of := team.HostsOf(ranks)
	unheardPairs := make(map[[2]int]int) // pairs of ranks, by their hosts
	for _, p := range pairs {
		unheardPairs[[2]int{of[p[0]], of[p[1]]}]++
	}
	hears, heard := make([]bool, len(hosts)), make([]bool, len(hosts)) // any other
	for from := range hosts {
		for to := range hosts {
			if from != to && unheardPairs[[2]int{from, to}] < len(ranksOn(of, from))*len(ranksOn(of, to)) {
				hears[to], heard[from] = true, true
			}
		}
	}
	if len(hosts) < 3 {
		return "multicast does not pass " + strings.Join(pairsText(pairs, ranks), ", ")
	}
	if !slices.Contains(hears, true) {
		return fmt.Sprintf("multicast does not pass between any two of the %d hosts", len(hosts))
	}
	var parts []string
	name := func(direction string, passes []bool) {
		for h := range hosts {
			if !passes[h] {
				parts = append(parts, fmt.Sprintf("%s host %v, %s", direction, hosts[h], team.RankList(ranksOn(of, h))))
			}
		}
	}
	name("to", hears)
	name("from", heard)
	rest := slices.DeleteFunc(slices.Clone(pairs), func(p [2]int) bool { return !heard[of[p[0]]] || !hears[of[p[1]]] })
	return "multicast does not pass " + strings.Join(append(parts, pairsText(rest, ranks)...), ", ")
}

// ranksOn are the ranks of a host.
func ranksOn(of []int, host int) (ranks []int) {
	for r := range of {
		if of[r] == host {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// pairsText lists pairs of ranks by who is not heard.
func pairsText(pairs [][2]int, ranks []team.Host) (out []string) {
	const most = 4
	var roots []int
	ears := map[int][]int{}
	for _, p := range pairs {
		if ears[p[0]] == nil {
			roots = append(roots, p[0])
		}
		ears[p[0]] = append(ears[p[0]], p[1])
	}
	for _, root := range roots[:min(len(roots), most)] {
		to := team.RankList(ears[root])
		if len(ears[root]) == 1 {
			to = fmt.Sprintf("%s on %v", to, ranks[ears[root][0]])
		}
		out = append(out, fmt.Sprintf("from rank %d on %v to %s", root, ranks[root], to))
	}
	if len(roots) > most {
		out = append(out, fmt.Sprintf("from %d more", len(roots)-most))
	}
	return out
}
