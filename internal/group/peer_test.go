package group

import (
	"testing"

	"github.com/stretchr/testify/require"

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
		ring := ringOf(testHosts(hosts))
		require.Equal(t, want, ring)
		cfg := multicast.Config{Size: len(hosts), Chunk: 1, Chains: 1, Subgroups: 1, Ring: ring}
		require.NoError(t, cfg.Check())
	}
	cfg := multicast.Config{Size: 3, Chunk: 1, Chains: 1, Subgroups: 1, Ring: []int{0, 2, 2}}
	require.ErrorContains(t, cfg.Check(), "ring [0 2 2]; want each of 3 ranks once")
}
