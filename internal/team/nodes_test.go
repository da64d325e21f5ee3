package team

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// on returns ranks on hosts of these numbers.
func on(hosts ...int) (all []Host) {
	for _, h := range hosts {
		all = append(all, Host{ID: fmt.Sprintf("boot-%d/net", h), Name: fmt.Sprintf("h%d", h)})
	}
	return all
}

func TestNodesOf(t *testing.T) {
	for _, c := range []struct {
		ranks []Host
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
		{on(append(make([]int, shm.MaxSize+1), slices.Repeat([]int{1}, shm.MaxSize+1)...)...), nil,
			"257 ranks a host are more than the 256 that share memory"},
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
			a := &Plan{Rank: rank, Size: len(hosts), Hosts: on(hosts...), Job: random.Uint64() | 1, Settings: config.Default()}
			a.Settings.Port = 40000
			a.layOut()
			require.True(t, a.TwoLevel())
			require.Len(t, a.Nodes, n)
			require.Equal(t, []int{columns, most}, []int{a.Columns, a.most})
			require.Equal(t, columns == most, a.Even())
			require.Equal(t, rank, a.Node.Rank(a.Node.Own))
			require.Equal(t, rank, a.Column.Rank(a.Column.Own))
			host, place := a.Where(rank)
			remote := a.Remote()
			require.Equal(t, rank, remote.Ranks[remote.Own])
			require.ElementsMatch(t, Everyone(rank, len(hosts)).Ranks, append(remote.Others(), a.Nodes[host]...))
			require.Equal(t, []int{a.HostIndex, a.Node.Own}, []int{host, place})
			stands := map[int][]int{} // of each column
			for _, r := range a.Surplus {
				require.Equal(t, a.Nodes[r.Host][r.Place], r.Rank)
				require.Equal(t, r.Rank, a.Owners[r.Column][r.Row])
				require.GreaterOrEqual(t, r.Row, n)
				stands[r.Column] = append(stands[r.Column], r.Rank)
			}
			require.ElementsMatch(t, Everyone(0, len(hosts)).Ranks, slices.Concat(a.Owners...), "each is summed for once")
			for column, owners := range a.Owners {
				require.Equal(t, at(a.Nodes, column), owners[:n])
			}
			if require.NotContains(t, a.Others(), rank); place >= columns {
				require.False(t, a.Crosses())
				require.Contains(t, stands[place%columns], rank)
				require.Equal(t, []int{rank}, a.Column.Ranks)
				require.Empty(t, a.Others())
				require.Empty(t, a.Neighbours())
				continue
			}
			require.True(t, a.Crosses())
			var rows []int // that the column sums for ranks that it stands for
			for _, h := range a.StandsFor() {
				for row := h.From; row < h.To; row++ {
					rows = append(rows, row)
					require.Contains(t, a.Nodes[h.Host][columns:], a.Owners[place][row])
				}
			}
			require.Len(t, rows, a.StoodFor(place))
			require.True(t, slices.IsSorted(rows))
			require.Equal(t, n, a.Column.Size())
			require.Equal(t, host, a.Column.Own)
			for _, r := range a.Node.Ranks {
				require.Equal(t, hosts[rank], hosts[r])
			}
			for h, r := range a.Column.Ranks {
				require.Equal(t, a.Nodes[h][place], r)
			}
			for _, r := range a.Neighbours() {
				require.Contains(t, a.Column.Ranks, r)
			}
			ports[a.ColumnPort(40000)] = true
		}
		require.Len(t, ports, columns, "each column has a port, which the hosts of it share")
	}
}

func TestFlatWhereAsked(t *testing.T) {
	for setting, change := range map[string]func(*config.Settings){
		"MCAST_NODES=off":  func(s *config.Settings) { s.Nodes = "off" },
		"MCAST_FABRIC=udp": func(s *config.Settings) { s.Fabric = "udp" },
	} {
		a := &Plan{Rank: 3, Size: 4, Hosts: on(0, 0, 1, 1), Job: 7, Settings: config.Default()}
		change(&a.Settings)
		a.layOut()
		require.False(t, a.TwoLevel())
		require.Contains(t, a.LevelsReason(), setting)
		require.Equal(t, Everyone(3, 4), a.Column)
		require.Equal(t, []int{0, 1, 2}, a.Others())
		require.Equal(t, a.Job, a.ColumnJob())
		require.EqualValues(t, 40000, a.ColumnPort(40000))
	}
}

func TestColumnPorts(t *testing.T) {
	a := &Plan{Rank: 3, Size: 4, Hosts: on(0, 0, 1, 1), Settings: config.Default()}
	a.layOut()
	require.EqualValues(t, firstPort, a.ColumnPort(firstPort+ports-1), "drawn ports come round")
	a.Settings.Port = 65535
	require.EqualValues(t, 65534, a.ColumnPort(65535), "there is none above")
}

// TestCut: segments lie one behind the other, in whole elements, and the length of the first one tells how many there
// are.
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
		a := &Plan{Settings: config.Default()}
		for h, k := range c.hosts {
			a.Hosts = append(a.Hosts, on(slices.Repeat([]int{h}, k)...)...)
		}
		a.Size = len(a.Hosts)
		a.layOut()
		for name, g := range map[string]SegmentSize{
			"gather": a.GatherSegment(false), "reduce": a.ReduceSegment(false), "root": RootSegment(),
		} {
			firsts := map[int]int{} // length of the first segment: how many there are
			large := 64 << 30 / a.Size / Line * Line
			for _, bytes := range []int{0, 8, SegmentBytes - 64, SegmentBytes - 8, SegmentBytes, SegmentBytes + 8,
				2*SegmentBytes - 72, 2*SegmentBytes - 64, 2 * SegmentBytes, 3*SegmentBytes - 128, 3 * SegmentBytes, 100 << 20,
				large} {
				all, at := g.Cut(bytes, 8), 0
				for _, s := range all {
					require.Equal(t, at, s.From)
					require.Zero(t, s.Len()%8)
					at = s.To
				}
				require.Equal(t, bytes, at)
				if others := firsts[all[0].Len()]; others > 0 {
					require.Equal(t, others, len(all), "a first segment of %d bytes", all[0].Len())
				}
				firsts[all[0].Len()] = len(all)
				if g.most > 0 {
					require.LessOrEqual(t, all[len(all)-1].Len(), g.most)
				}
			}
			if name == "gather" {
				require.Len(t, g.Cut(large, 8), c.gathers)
			}
		}
		require.Len(t, a.GatherSegment(true).Cut(1<<30, 8), 1)
		require.Len(t, a.ReduceSegment(true).Cut(64<<10, 8), 1, "a segment of an Allreduce")
	}
}

// TestSumsAreBounded: however many hosts there are, what lies between the levels does not take more memory.
func TestSumsAreBounded(t *testing.T) {
	for _, hosts := range [][]int{{2, 2}, {200, 1}, append(slices.Repeat([]int{8}, 64), 7),
		slices.Repeat([]int{2}, 1000)} {
		a := &Plan{Settings: config.Default()}
		for h, k := range hosts {
			a.Hosts = append(a.Hosts, on(slices.Repeat([]int{h}, k)...)...)
		}
		a.Size = len(a.Hosts)
		a.layOut()
		for _, whole := range []bool{false, true} {
			for _, bytes := range []int{100, 4 << 20} {
				for _, s := range a.ReduceSegment(whole).Cut(bytes, 4) {
					require.LessOrEqual(t, s.Len()*len(a.Owners[0]), 2*mostSums, "%d hosts, %d bytes, whole %v", len(hosts), bytes,
						whole)
				}
			}
		}
	}
}
