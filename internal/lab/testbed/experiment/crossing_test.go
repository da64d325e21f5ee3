package experiment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/crossing"
)

// What 4 hosts of 4 ranks pass, in shards, by the names of collectives that rows have.
func TestCrosses(t *testing.T) {
	for collective, want := range map[string]crossing.Load{
		"allgather": {Out: 4, In: 12}, "reducescatter": {Out: 12, In: 4}, "overlap": {Out: 16, In: 16},
	} {
		l, known := nodesSwitchWay.crosses(collective, 4, 4)
		require.True(t, known)
		require.Equal(t, want, l, collective)
	}
	_, known := mpiWay.crosses("allgather", 4, 4)
	require.False(t, known)
	_, known = nodesWay.crosses("barrier", 4, 4)
	require.False(t, known)
	alone, known := nodesSwitchWay.crosses("overlap", 1, 8)
	require.True(t, known)
	require.Zero(t, alone, "nothing leaves one host")
	require.InDelta(t, law(4), nodesSwitchWay.speedup(4, 1), 1e-12)
	require.Zero(t, mpiWay.speedup(4, 4))
}
