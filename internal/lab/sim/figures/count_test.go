package figures

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// Port counters of a calm run show to the byte what the topology says.
func TestCountersAreExact(t *testing.T) {
	for _, tree := range []fattree.Config{
		{Hosts: 5}, {Hosts: 24, Leaves: 3, Spines: 2}, {Hosts: 32, Radix: 6, Tiers: 3}, testbed(testbedNodes).Tree,
	} {
		plan, err := fattree.New(tree)
		require.NoError(t, err)
		net := testbed(tree.Hosts)
		net.Tree = tree
		for _, c := range []struct{ collective, algorithm string }{
			{"broadcast", Multicast}, {"allgather", Multicast}, {"allgather", "ring"}, {"allgather", "linear"},
			{"allgather", "doubling"},
		} {
			want, ok := count{plan, 2}.exact(c.collective, c.algorithm, 3*packetBytes)
			if !ok {
				require.Equal(t, "doubling", c.algorithm)
				continue
			}
			o, err := Case{Collective: c.collective, Algorithm: c.algorithm, Bytes: 3 * packetBytes, Net: net, Seed: 1}.Run(nil)
			require.NoError(t, err)
			require.Equal(t, want, int(o.Switch), "%v %v", c, tree)
		}
	}
}

// The same seed gives the same events, another one others.
func TestSameSeed(t *testing.T) {
	c := Case{Collective: "allgather", Algorithm: Multicast, Bytes: 100_000, Net: testbed(20), Chains: 2, Seed: 1}
	c.Net.Faults = network.Faults{Loss: 0.01, Jitter: 1000}
	hash := map[uint64]string{}
	for _, seed := range []uint64{1, 2, 1} {
		c.Seed = seed
		o, err := c.Run(nil)
		require.NoError(t, err)
		require.Positive(t, o.Lost)
		if before, ok := hash[seed]; ok {
			require.Equal(t, before, o.Hash)
		}
		hash[seed] = o.Hash
	}
	require.NotEqual(t, hash[1], hash[2])
}

// By hand: 8 hosts at one switch, and 4 at two leaves below a spine.
func TestCrossings(t *testing.T) {
	for _, c := range []struct {
		tree                  fattree.Config
		collective, algorithm string
		want                  int
	}{
		{fattree.Config{Hosts: 8}, "allgather", Multicast, 8 * (1 + 7)},
		{fattree.Config{Hosts: 8}, "allgather", "ring", 7 * 8 * 2},
		{fattree.Config{Hosts: 8}, "broadcast", Multicast, 1 + 7},
		{fattree.Config{Hosts: 8}, "broadcast", "binomial", 7 * 2},
		{fattree.Config{Hosts: 4, Leaves: 2, Spines: 1}, "broadcast", Multicast, 1 + 3 + 4},
		{fattree.Config{Hosts: 4, Leaves: 2, Spines: 1}, "broadcast", "chain", 2 + 6 + 2},
		{fattree.Config{Hosts: 4, Leaves: 2, Spines: 1}, "broadcast", "binomial", 2 + 6 + 6}, // 0 to 1, then both to 2 and 3
		{fattree.Config{Hosts: 4, Leaves: 2, Spines: 1}, "allgather", "ring", 3 * (2 + 6 + 2 + 6)},
	} {
		n, ok := Crossings(c.tree, c.collective, c.algorithm)
		require.True(t, ok)
		require.Equal(t, c.want, n, "%v", c)
	}
	_, ok := Crossings(fattree.Config{Hosts: 8}, "broadcast", "knomial")
	require.False(t, ok)
}
