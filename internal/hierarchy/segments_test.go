package hierarchy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestSegments: they cover a buffer, each with a shard of equal length for every rank.
func TestSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "size")
		ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
		count := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 1<<23)).Draw(t, "count")
		send := make([]byte, count*size)
		recv := make([]byte, count*size)
		a := newAllreduce(&team.Plan{Size: ranks}, send, recv, size)
		require.NotEmpty(t, a.segments)
		if count == 0 {
			require.Len(t, a.segments, 1)
			return
		}
		require.LessOrEqual(t, len(a.segments), team.MostAllreduce+1)
		at := 0
		for i, s := range a.segments {
			require.Len(t, s.recv, len(s.send))
			require.Zero(t, len(s.send)%(size*ranks))
			if i == len(a.segments)-1 && a.scratch != nil {
				require.Same(t, &a.scratch[:1][0], &s.send[:1][0])
				break
			}
			require.Same(t, &send[at], &s.send[0])
			require.Same(t, &recv[at], &s.recv[0])
			at += len(s.send)
		}
		require.Len(t, recv, at+len(a.tail))
		require.LessOrEqual(t, len(a.tail), len(a.scratch))
	})
}
