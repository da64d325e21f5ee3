package collnet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStats: what a step cost is the difference of two readings.
func TestStats(t *testing.T) {
	require.NoError(t, InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		const shard = 1000
		send, recv := make([]byte, shard), make([]byte, 2*shard)
		for range 3 {
			before := g.Stats()
			if err := g.Allgather(t.Context(), send, recv); err != nil {
				return err
			}
			step := g.Stats().Sub(before)
			require.EqualValues(t, 1, step.GatherOps)
			require.EqualValues(t, shard, step.GatherBytes)
			require.GreaterOrEqual(t, step.GatherSentBytes, uint64(shard))
			require.Positive(t, step.GatherBusy)
			require.Zero(t, step.ReduceOps)
		}
		require.EqualValues(t, 3, g.Stats().GatherOps)
		return nil
	}))
}
