package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// on returns ranks on hosts of these numbers.
func on(hosts ...int) (all []host) {
	for _, h := range hosts {
		all = append(all, host{id: fmt.Sprintf("boot-%d/net", h), name: fmt.Sprintf("h%d", h)})
	}
	return all
}

func TestNodesOf(t *testing.T) {
	for _, c := range []struct {
		ranks []host
		nodes [][]int
		flat  string
	}{
		{on(0, 0, 1, 1), [][]int{{0, 1}, {2, 3}}, ""},
		{on(0, 1, 0, 1), [][]int{{0, 2}, {1, 3}}, ""},
		{on(5, 2, 2, 5, 7, 7), [][]int{{0, 3}, {1, 2}, {4, 5}}, ""},
		{on(0), nil, "all ranks are on one host"},
		{on(0, 0, 0), nil, "all ranks are on one host"},
		{on(0, 1, 2), nil, "each host holds one rank"},
		{on(0, 0, 1), [][]int{{0, 1}, {2}}, ""},
		{on(0, 1, 2, 1), [][]int{{0}, {1, 3}, {2}}, ""},
		{on(append(make([]int, shm.MaxSize+1), slices.Repeat([]int{1}, shm.MaxSize+1)...)...), nil, "257 ranks a host are more than the 256 that share memory"},
	} {
		nodes, flat := nodesOf(c.ranks)
		require.Equal(t, c.nodes, nodes)
		require.Contains(t, flat, c.flat)
		require.Equal(t, nodes == nil, flat != "")
	}
}

// TestColumnsAndNodes deals ranks to hosts at random: each rank is in one node and one column, or another one
// of its host stands for it, and all agree on who is where.
func TestColumnsAndNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		n, k := 2+random.IntN(4), 2+random.IntN(4)
		columns, most := k, k
		var hosts []int
		for h := range n {
			here := k
			if h > 0 && round%2 == 1 {
				here = 1 + random.IntN(6)
			}
			columns, most = min(columns, here), max(most, here)
			hosts = append(hosts, slices.Repeat([]int{h}, here)...)
		}
		random.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		ports := map[uint16]bool{}
		for rank := range hosts {
			a := &agreement{rank: rank, size: len(hosts), hosts: on(hosts...), job: random.Uint64() | 1, settings: config.Default()}
			a.settings.Port = 40000
			a.layOut()
			require.True(t, a.twoLevel())
			require.Len(t, a.nodes, n)
			require.Equal(t, []int{columns, most}, []int{a.columns, a.most})
			require.Equal(t, columns == most, a.even())
			require.Equal(t, rank, a.node.rank(a.node.own))
			require.Equal(t, rank, a.column.rank(a.column.own))
			host, place := a.where(rank)
			require.Equal(t, []int{a.host, a.node.own}, []int{host, place})
			stands := map[int][]int{} // of each column
			for _, r := range a.surplus {
				require.Equal(t, a.nodes[r.host][r.place], r.rank)
				require.Equal(t, r.rank, a.owners[r.column][r.row])
				require.GreaterOrEqual(t, r.row, n)
				stands[r.column] = append(stands[r.column], r.rank)
			}
			require.ElementsMatch(t, everyone(0, len(hosts)).ranks, slices.Concat(a.owners...), "each is summed for once")
			for column, owners := range a.owners {
				require.Equal(t, at(a.nodes, column), owners[:n])
			}
			if require.NotContains(t, a.others(), rank); place >= columns {
				require.False(t, a.crosses())
				require.Contains(t, stands[place%columns], rank)
				require.Equal(t, []int{rank}, a.column.ranks)
				require.Empty(t, a.others())
				require.Empty(t, a.neighbours())
				continue
			}
			require.True(t, a.crosses())
			var rows []int // that the column sums for ranks that it stands for
			for _, h := range a.standsFor() {
				for row := h.from; row < h.to; row++ {
					rows = append(rows, row)
					require.Contains(t, a.nodes[h.host][columns:], a.owners[place][row])
				}
			}
			require.Len(t, rows, a.stood(place))
			require.True(t, slices.IsSorted(rows))
			require.Equal(t, n, a.column.size())
			require.Equal(t, host, a.column.own)
			for _, r := range a.node.ranks {
				require.Equal(t, hosts[rank], hosts[r])
			}
			for h, r := range a.column.ranks {
				require.Equal(t, a.nodes[h][place], r)
			}
			for _, r := range a.neighbours() {
				require.Contains(t, a.column.ranks, r)
			}
			ports[a.columnPort(40000)] = true
		}
		require.Len(t, ports, columns, "each column has a port, which the hosts of it share")
	}
}

func TestFlatWhereAsked(t *testing.T) {
	for setting, change := range map[string]func(*config.Settings){
		"MCAST_NODES=off":  func(s *config.Settings) { s.Nodes = "off" },
		"MCAST_FABRIC=udp": func(s *config.Settings) { s.Fabric = "udp" },
	} {
		a := &agreement{rank: 3, size: 4, hosts: on(0, 0, 1, 1), job: 7, settings: config.Default()}
		change(&a.settings)
		a.layOut()
		require.False(t, a.twoLevel())
		require.Contains(t, a.levels(), setting)
		require.Equal(t, everyone(3, 4), a.column)
		require.Equal(t, []int{0, 1, 2}, a.others())
		require.Equal(t, a.job, a.columnJob())
		require.EqualValues(t, 40000, a.columnPort(40000))
	}
}

func TestColumnPorts(t *testing.T) {
	a := &agreement{rank: 3, size: 4, hosts: on(0, 0, 1, 1), settings: config.Default()}
	a.layOut()
	require.EqualValues(t, firstPort, a.columnPort(firstPort+ports-1), "drawn ports come round")
	a.settings.Port = 65535
	require.EqualValues(t, 65534, a.columnPort(65535), "there is none above")
}

// TestCut: segments lie one behind the other, in whole elements, and the length of the first one tells how many there are.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		hosts   []int // ranks of each
		gathers int   // segments of a large Allgather
	}{
		{[]int{2, 2}, 64},
		{slices.Repeat([]int{8}, 4), 32},
		{slices.Repeat([]int{8}, 100), leastSegments},
		{append(slices.Repeat([]int{8}, 64), 7), leastSegments},
	} {
		a := &agreement{settings: config.Default()}
		for h, k := range c.hosts {
			a.hosts = append(a.hosts, on(slices.Repeat([]int{h}, k)...)...)
		}
		a.size = len(a.hosts)
		a.layOut()
		for name, g := range map[string]grain{"gather": a.gatherGrain(false), "reduce": a.reduceGrain(false), "root": rootGrain()} {
			firsts := map[int]int{} // length of the first segment: how many there are
			large := 64 << 30 / a.size / line * line
			for _, bytes := range []int{0, 8, segmentOfNode - 64, segmentOfNode - 8, segmentOfNode, segmentOfNode + 8, 2*segmentOfNode - 72, 2*segmentOfNode - 64, 2 * segmentOfNode, 3*segmentOfNode - 128, 3 * segmentOfNode, 100 << 20, large} {
				all, at := g.cut(bytes, 8), 0
				for _, s := range all {
					require.Equal(t, at, s.from)
					require.Zero(t, s.len()%8)
					at = s.to
				}
				require.Equal(t, bytes, at)
				if others := firsts[all[0].len()]; others > 0 {
					require.Equal(t, others, len(all), "a first segment of %d bytes", all[0].len())
				}
				firsts[all[0].len()] = len(all)
				if g.most > 0 {
					require.LessOrEqual(t, all[len(all)-1].len(), g.most)
				}
			}
			if name == "gather" {
				require.Len(t, g.cut(large, 8), c.gathers)
			}
		}
		require.Len(t, a.gatherGrain(true).cut(1<<30, 8), 1)
		require.Len(t, a.reduceGrain(true).cut(64<<10, 8), 1, "a segment of an Allreduce")
	}
}

// TestSumsAreBounded: however many hosts there are, what lies between the levels does not take more memory.
func TestSumsAreBounded(t *testing.T) {
	for _, hosts := range [][]int{{2, 2}, {200, 1}, append(slices.Repeat([]int{8}, 64), 7), slices.Repeat([]int{2}, 1000)} {
		a := &agreement{settings: config.Default()}
		for h, k := range hosts {
			a.hosts = append(a.hosts, on(slices.Repeat([]int{h}, k)...)...)
		}
		a.size = len(a.hosts)
		a.layOut()
		for _, whole := range []bool{false, true} {
			for _, bytes := range []int{100, 4 << 20} {
				for _, s := range a.reduceGrain(whole).cut(bytes, 4) {
					require.LessOrEqual(t, s.len()*len(a.owners[0]), 2*mostSums, "%d hosts, %d bytes, whole %v", len(hosts), bytes, whole)
				}
			}
		}
	}
}

// TestPartialSums gives each slot out again only behind what reads it.
func TestPartialSums(t *testing.T) {
	var p partialSums
	reads := make([]*engine.Work, sumSlots)
	for i := range 3 * sumSlots {
		s := p.take(4, 25)
		require.Len(t, s.rows(0, 4), 100)
		require.Len(t, s.rows(1, 3), 50)
		require.Same(t, &s.bytes[25], &s.rows(1, 2)[0])
		require.True(t, s.free == reads[i%sumSlots])
		reads[i%sumSlots] = new(engine.Work)
		s.readBy(reads[i%sumSlots])
	}
	require.Len(t, p.take(1, 50).bytes, 50)
	large := p.take(2, 100)
	require.Len(t, large.bytes, 200)
	require.Nil(t, large.free, "new memory waits for nobody")
}
