package crossing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	allWays = []Way{Nodes, NodesSwitch, Flat, FlatSwitch, Ring, Gloo}
	mpi     = Way("mpi")
)

// What 4 hosts of 4 ranks pass, in shards.
func TestCrosses(t *testing.T) {
	for _, c := range []struct {
		way             Way
		gather, scatter Load
	}{
		{Nodes, Load{4, 12}, Load{12, 12}},
		{NodesSwitch, Load{4, 12}, Load{12, 4}},
		{Flat, Load{4, 12}, Load{48, 48}},
		{FlatSwitch, Load{4, 12}, Load{60, 4}},
		{Ring, Load{15, 15}, Load{15, 15}},
		{Gloo, Load{15, 15}, Load{30, 30}},
	} {
		require.True(t, c.way.Known())
		require.Equal(t, c.gather, c.way.Allgather(4, 4), c.way)
		require.Equal(t, c.scatter, c.way.ReduceScatter(4, 4), c.way)
		require.Equal(t, Load{c.gather.Out + c.scatter.Out, c.gather.In + c.scatter.In}, c.way.Both(4, 4), c.way)
		require.Equal(t, Load{}, c.way.Both(1, 8), "nothing leaves one host")
	}
	require.False(t, mpi.Known())
	require.Equal(t, Load{}, mpi.Both(4, 4))
}

// A ring goes round twice for an Allreduce, gloo's no more often; with a switch each direction carries all once.
func TestAllreduce(t *testing.T) {
	for p := 2; p <= 8; p++ {
		require.Equal(t, 2*(p-1), Ring.Allreduce(p, 1).Busiest())
		require.Equal(t, 2*(p-1), Gloo.Allreduce(p, 1).Busiest())
		require.Equal(t, 2*(p-1), Nodes.Allreduce(p, 1).Busiest())
		require.Equal(t, p, NodesSwitch.Allreduce(p, 1).Busiest())
	}
}

// With one rank a host, nodes are ranks: the same bytes, and what the paper promises.
func TestOneRankAHost(t *testing.T) {
	for hosts := 2; hosts <= 1024; hosts *= 2 {
		for _, pair := range [][2]Way{{Nodes, Flat}, {NodesSwitch, FlatSwitch}} {
			require.Equal(t, pair[1].Both(hosts, 1), pair[0].Both(hosts, 1))
		}
		require.InDelta(t, 2-2/float64(hosts), NodesSwitch.Speedup(hosts, 1), 1e-12)
		require.InDelta(t, 1, Nodes.Speedup(hosts, 1), 1e-12)
	}
}

// The law of docs/explain/nodes.md.
func TestSpeedup(t *testing.T) {
	for hosts := 2; hosts <= 64; hosts++ {
		for perHost := 1; perHost <= 16; perHost *= 2 {
			ranks := float64(hosts * perHost)
			require.InDelta(t, 2-2/ranks, NodesSwitch.Speedup(hosts, perHost), 1e-12)
			require.InDelta(t, (ranks-1)/(ranks-float64(perHost)), Nodes.Speedup(hosts, perHost), 1e-12)
			require.InDelta(t, (2-2/ranks)/float64(perHost), FlatSwitch.Speedup(hosts, perHost), 1e-12)
			require.InDelta(t, 1, Ring.Speedup(hosts, perHost), 0)
		}
	}
	require.Zero(t, mpi.Speedup(4, 4))
	require.Zero(t, Nodes.Speedup(1, 8))
}

// The least that any way sends for a collective, which ours does not stay below: an Allgather
// brings every host the shards of all others, and every shard leaves its host at least once.
func TestNoLessThanItMust(t *testing.T) {
	for _, w := range allWays {
		for hosts := 2; hosts <= 8; hosts++ {
			for perHost := 1; perHost <= 8; perHost++ {
				gather := w.Allgather(hosts, perHost)
				require.GreaterOrEqual(t, gather.In, (hosts-1)*perHost)
				require.GreaterOrEqual(t, gather.Out, perHost)
				scatter := w.ReduceScatter(hosts, perHost)
				require.GreaterOrEqual(t, scatter.Out, (hosts-1)*perHost)
				require.GreaterOrEqual(t, scatter.In, perHost)
			}
		}
	}
}
