package team

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
)

// TestRing: it enters and leaves each host once, however ranks are dealt to hosts.
func TestRing(t *testing.T) {
	for hosts, want := range map[string][]int{
		"aabb":   {0, 1, 2, 3},
		"abab":   {0, 2, 1, 3},
		"abcabc": {0, 3, 1, 4, 2, 5},
		"abbaac": {0, 3, 4, 1, 2, 5},
	} {
		ring := ringOf(lettered(hosts))
		require.Equal(t, want, ring)
		cfg := multicast.Config{Size: len(hosts), Chunk: 1, Chains: 1, Subgroups: 1, Ring: ring}
		require.NoError(t, cfg.Check())
	}
	cfg := multicast.Config{Size: 3, Chunk: 1, Chains: 1, Subgroups: 1, Ring: []int{0, 2, 2}}
	require.ErrorContains(t, cfg.Check(), "ring [0 2 2]; want each of 3 ranks once")
}

// TestRingFollowsPlaces: it enters and leaves each rack and row once.
func TestRingFollowsPlaces(t *testing.T) {
	for _, c := range []struct {
		hosts  string // of each rank
		places string // of each rank
		want   []int
	}{
		{"abcd", "r1 r2 r1 r2", []int{0, 2, 1, 3}},
		{"abcd", "r1 r1 r2 r2", []int{0, 1, 2, 3}},
		{"abcabc", "r1 r2 r1 r1 r2 r1", []int{0, 3, 2, 5, 1, 4}},
		{"abcdef", "x/1 y/1 x/2 y/2 x/1 y/1", []int{0, 4, 2, 1, 5, 3}},
		{"abcd", "x/1 y/1 x y", []int{0, 2, 1, 3}},
		{"abab", "r1 r2 r3 r4", []int{0, 2, 1, 3}}, // a host is in one place, where its first rank is
		{"abcd", "- r1 - r1", []int{0, 2, 1, 3}},   // hosts that name no place do not come between hosts that do
	} {
		ranks := lettered(c.hosts)
		for r, place := range strings.Fields(c.places) {
			ranks[r].place = strings.Trim(place, "-")
		}
		require.Equal(t, c.want, ringOf(ranks), c)
	}
}

// TestRingLeavesPartsOnce deals ranks to hosts, racks and rows at random.
func TestRingLeavesPartsOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		places := make([][]string, 1+random.IntN(8)) // of each host
		for h := range places {
			for range random.IntN(4) {
				places[h] = append(places[h], string(rune('a'+random.IntN(3))))
			}
		}
		var hosts []int
		for range 1 + random.IntN(16) {
			hosts = append(hosts, random.IntN(len(places)))
		}
		ranks := on(hosts...)
		for r, h := range hosts {
			ranks[r].place = strings.Join(places[h], "/")
		}
		ring := ringOf(ranks)
		require.Len(t, ring, len(hosts))
		part := func(rank, depth int) string {
			where := slices.Clone(places[hosts[rank]])
			return strings.Join(where[:min(depth, len(where))], "/")
		}
		for depth := 1; depth <= 3; depth++ {
			runs, parts := 0, map[string]bool{}
			for i, r := range ring {
				if i == 0 || part(r, depth) != part(ring[i-1], depth) {
					runs++
				}
				parts[part(r, depth)] = true
			}
			require.Equal(t, len(parts), runs, "ring %v, hosts %v, places %v", ring, hosts, places)
		}
	}
}

// TestColumnsFollowPlaces: nodes stay in their order, on which the bits of sums depend.
func TestColumnsFollowPlaces(t *testing.T) {
	ranks := on(0, 1, 2, 3, 0, 1, 2, 3)
	for r := range ranks {
		ranks[r].place = []string{"r1", "r2"}[r%2]
	}
	a := &Plan{Rank: 5, Size: 8, Hosts: ranks, Job: 7, Settings: config.Default()}
	a.layOut()
	require.Equal(t, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, a.Nodes)
	require.Equal(t, []int{0, 2, 1, 3}, a.Ring)
	require.Equal(t, []int{4, 6, 5, 7}, a.RingRanks())
	require.Equal(t, []int{7, 6, 4}, a.Neighbours(), "the right one, the left one, and the one across")
}

// lettered are ranks on hosts of one letter each.
func lettered(letters string) (ranks []Host) {
	for _, l := range letters {
		name := string(l)
		ranks = append(ranks,
			Host{ID: "boot-" + name + "/1/", Name: name, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(l-'a') + 1})})
	}
	return ranks
}
