package experiment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var allWays = []way{nodesWay, nodesSwitchWay, flatWay, flatSwitchWay, ringWay, glooWay}

// What 4 hosts of 4 ranks pass, in shards.
func TestCrosses(t *testing.T) {
	for _, c := range []struct {
		way             way
		gather, scatter crossing
	}{
		{nodesWay, crossing{4, 12}, crossing{12, 12}},
		{nodesSwitchWay, crossing{4, 12}, crossing{12, 4}},
		{flatWay, crossing{4, 12}, crossing{48, 48}},
		{flatSwitchWay, crossing{4, 12}, crossing{60, 4}},
		{ringWay, crossing{15, 15}, crossing{15, 15}},
		{glooWay, crossing{15, 15}, crossing{30, 30}},
	} {
		gather, known := c.way.crosses("allgather", 4, 4)
		require.True(t, known)
		require.Equal(t, c.gather, gather, c.way)
		scatter, known := c.way.crosses("reducescatter", 4, 4)
		require.True(t, known)
		require.Equal(t, c.scatter, scatter, c.way)
		both, known := c.way.crosses("overlap", 4, 4)
		require.True(t, known)
		require.Equal(t, crossing{c.gather.out + c.scatter.out, c.gather.in + c.scatter.in}, both, c.way)
	}
	_, known := mpiWay.crosses("allgather", 4, 4)
	require.False(t, known)
	_, known = nodesWay.crosses("barrier", 4, 4)
	require.False(t, known)
	alone, known := nodesWay.crosses("overlap", 1, 8)
	require.True(t, known)
	require.Equal(t, crossing{}, alone, "nothing leaves one host")
}

// With one rank a host, nodes are ranks: the same bytes, and what the paper promises.
func TestCrossesOneRankAHost(t *testing.T) {
	for hosts := 2; hosts <= 1024; hosts *= 2 {
		for _, pair := range [][2]way{{nodesWay, flatWay}, {nodesSwitchWay, flatSwitchWay}} {
			nodes, _ := pair[0].crosses("overlap", hosts, 1)
			flat, _ := pair[1].crosses("overlap", hosts, 1)
			require.Equal(t, flat, nodes)
		}
		require.InDelta(t, law(hosts), nodesSwitchWay.speedup(hosts, 1), 1e-12)
		require.InDelta(t, 1, nodesWay.speedup(hosts, 1), 1e-12)
	}
}

// The law of docs/NODES.md.
func TestSpeedup(t *testing.T) {
	for hosts := 2; hosts <= 64; hosts++ {
		for perHost := 1; perHost <= 16; perHost *= 2 {
			ranks := float64(hosts * perHost)
			require.InDelta(t, 2-2/ranks, nodesSwitchWay.speedup(hosts, perHost), 1e-12)
			require.InDelta(t, (ranks-1)/(ranks-float64(perHost)), nodesWay.speedup(hosts, perHost), 1e-12)
			require.InDelta(t, (2-2/ranks)/float64(perHost), flatSwitchWay.speedup(hosts, perHost), 1e-12)
			require.InDelta(t, 1, ringWay.speedup(hosts, perHost), 0)
		}
	}
	require.Zero(t, mpiWay.speedup(4, 4))
	require.Zero(t, nodesWay.speedup(1, 8))
}

// The least that any way sends for a collective, which ours does not stay below: an Allgather
// brings every host the shards of all others, and every shard leaves its host at least once.
func TestCrossesNoLessThanItMust(t *testing.T) {
	for _, w := range allWays {
		for hosts := 2; hosts <= 8; hosts++ {
			for perHost := 1; perHost <= 8; perHost++ {
				gather, _ := w.crosses("allgather", hosts, perHost)
				require.GreaterOrEqual(t, gather.in, (hosts-1)*perHost)
				require.GreaterOrEqual(t, gather.out, perHost)
				scatter, _ := w.crosses("reducescatter", hosts, perHost)
				require.GreaterOrEqual(t, scatter.out, (hosts-1)*perHost)
				require.GreaterOrEqual(t, scatter.in, perHost)
			}
		}
	}
}
