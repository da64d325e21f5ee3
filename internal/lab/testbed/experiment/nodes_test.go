package experiment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShapes(t *testing.T) {
	all, err := shapes([]int{4, 2}, []int{4, 8})
	require.NoError(t, err)
	require.Equal(t, []shape{{4, 4}, {2, 8}}, all)
	all, err = shapes([]int{2, 4}, []int{8})
	require.NoError(t, err)
	require.Equal(t, []shape{{2, 8}, {4, 8}}, all)
	require.Equal(t, "2 x 8", all[0].String())
	_, err = shapes([]int{2, 4, 8}, []int{1, 2})
	require.EqualError(t, err, "3 numbers of hosts and 2 of ranks a host: want as many, or one for all")
	_, err = shapes([]int{4}, []int{0})
	require.EqualError(t, err, "4 hosts of 0 ranks each are not allowed: want at least 1 of each")
}

// measured is what ways would take that reach a share of what links allow.
func measured(s shape, n int, reached map[way]float64) (rows []Row) {
	for w, part := range reached {
		for _, collective := range []string{"allgather", "reducescatter", "overlap"} {
			c, _ := w.crosses(collective, s.hosts, s.perHost)
			r := rowAt(ours, collective, s.hosts, n, ideal(float64(c.Busiest()*n), 1e9)/part)
			r.Variant, r.CPU = string(w), 1.5
			rows = append(rows, r)
		}
	}
	return rows
}

func TestNodesRows(t *testing.T) {
	s := shape{4, 4}
	const n = 4 << 20
	rows := nodesRows(s, 1e9,
		measured(s, n, map[way]float64{nodesWay: 0.95, nodesSwitchWay: 0.9, flatWay: 0.5, ringWay: 0.9}))
	require.Len(t, rows, 12)
	at := func(w way, collective string) nodesRow { return rows[findRow(rows, w, collective, n)] }
	gather := at(nodesWay, "allgather")
	require.Equal(t, []float64{4 * n, 12 * n}, []float64{gather.LawSent, gather.LawReceived})
	require.InDelta(t, 402.65e3, gather.IdealUS, 10) // 48 MiB at 1 Gbit/s
	require.Zero(t, gather.S)
	require.Equal(t, 48.0*n, at(flatWay, "reducescatter").LawSent)
	both := at(nodesSwitchWay, "overlap")
	require.InDelta(t, 1.875, both.Law, 1e-12)
	require.InDelta(t, 1.875, both.S, 1e-9, "both reach as much of what they can")
	require.InDelta(t, 1.25*0.95/0.9, at(nodesWay, "overlap").S, 1e-9)
	require.Equal(t, -1, findRow(rows, nodesWay, "overlap", 2*n))

	alone := nodesRows(s, 1e9, measured(s, n, map[way]float64{nodesWay: 0.95}))
	require.Zero(t, alone[findRow(alone, nodesWay, "overlap", n)].S, "there was no ring beside it")
}

func TestNodesResults(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	s := shape{4, 4}
	const n = 4 << 20
	rows := nodesRows(s, 1e9, measured(s, n, map[way]float64{nodesWay: 0.95, nodesSwitchWay: 0.89, ringWay: 0.9}))
	count := func(w way, collective string, sent, received float64) {
		r := &rows[findRow(rows, w, collective, n)]
		r.Sent, r.Received = sent*n, received*n
	}
	count(nodesWay, "allgather", 4.1, 12.3)
	count(nodesWay, "reducescatter", 12.48, 12.6)
	count(ringWay, "allgather", 15.3, 15.3)
	tables := l.nodesTables("1gbit")
	l.nodesTable(tables, s, n, rows)
	require.Len(t, tables.times.lines, 4)
	require.Len(t, tables.bytes.lines, 3, "of the switch's way nothing was counted")
	byWay := map[string][]string{}
	for _, line := range tables.bytes.lines[1:] {
		byWay[line[2]] = line
	}
	require.Equal(t, []string{"4 x 4", "4 MiB", "nodes", "1.025 (1)", "1.025 (1)", "1.040 (1)", "1.050 (1)"},
		byWay["nodes"])
	require.Equal(t, []string{"4 x 4", "4 MiB", "ring", "3.825 (3.75)", "1.275 (1.25)", "", ""}, byWay["ring"])
	for _, line := range tables.times.lines[1:] {
		byWay[line[2]] = line
	}
	require.Equal(t, []string{"4 x 4", "4 MiB", "nodes", "424", "0.950", "424", "0.950", "848", "0.950", "1.500", "1.319",
		"1.250", "1.056"}, byWay["nodes"])

	l.nodesGoals(s, n, rows)
	met := map[string]bool{}
	for _, g := range l.goals {
		met[g.What] = g.Met
	}
	require.Equal(t, map[string]bool{
		"allgather of 4 MiB on 4 x 4 by nodes, share of what a link allows":             true,
		"allgather of 4 MiB on 4 x 4 by nodes, bytes in over (P-K)n":                    true,
		"reducescatter of 4 MiB on 4 x 4 by nodes, share of what a link allows":         true,
		"reducescatter of 4 MiB on 4 x 4 by nodes, bytes out over (P-K)n":               false,
		"allgather of 4 MiB on 4 x 4 by nodes, switch, share of what a link allows":     false,
		"reducescatter of 4 MiB on 4 x 4 by nodes, switch, share of what a link allows": false,
	}, met)
	l.nodesGoals(shape{1, 8}, n, rows)
	require.Len(t, l.goals, 6, "one host has no link to hold to anything")
}

func TestAsNodes(t *testing.T) {
	rows := measured(shape{4, 4}, 1<<20, map[way]float64{nodesWay: 0.9})
	require.ErrorContains(t, asNodes(shape{4, 4}, rows), "by nodes: the ranks of 0 hosts worked together, not of 4")
	for i := range rows {
		rows[i].Nodes = 4
	}
	require.NoError(t, asNodes(shape{4, 4}, rows))
	require.Error(t, asNodes(shape{4, 1}, rows), "one rank a host is no node")
	rows[0].Variant = "flat"
	require.ErrorContains(t, asNodes(shape{4, 4}, rows), "by flat")
}

func TestWork(t *testing.T) {
	l := &lab{ctx: t.Context(), Options: Options{Rounds: 5}}
	s := shape{4, 4}
	require.Equal(t, work{
		peer: ours, variant: "flat", collective: "overlap", bytes: []int{8}, iters: 2, warmup: 1,
		env: []string{"MCAST_NODES=off"}, perHost: 4, flags: []string{"--exact"},
	},
		flatWay.work(l, "overlap", s, 8))
	require.Empty(t, nodesWay.work(l, "allgather", s, 8).flags, "it sums nothing")
	require.True(t, glooWay.work(l, "overlap", s, 8).mayFail)
	require.Equal(t, mpi, mpiWay.work(l, "overlap", s, 8).peer)
	require.True(t, l.counts(ringWay))
	l.Rounds = 1
	require.False(t, l.counts(ringWay), "in a look")
	require.Equal(t, 1, ringWay.work(l, "overlap", s, 8).iters)
}

func TestCPUTable(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	s := shape{2, 4}
	rows := []Row{rowAt(ours, "allgather", 2, 125_000_000, 1e6), rowAt(ours, "allgather", 2, 125_000_000, 2e6)}
	rows[0].Variant, rows[0].CPU = "nodes", 4
	rows[1].Variant, rows[1].CPU = "flat", 6
	table := l.table("t")
	l.cpuTable(table, s, 125_000_000, rows)
	line := table.lines[2]
	require.Equal(t, []string{"2 x 4", line[1], "flat", "2e+03", "2.00x", "6.000", "0.750", "1.50x"}, line)
}
