package multicast

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestGeometry checks that the chunks of a shape cover its buffer exactly.
func TestGeometry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, chunk := rapid.IntRange(1, 9).Draw(t, "ranks"), rapid.IntRange(1, 50).Draw(t, "chunk")
		o := Op{
			Collective: rapid.SampledFrom([]wire.Collective{wire.Broadcast, wire.Allgather}).Draw(t, "collective"),
			Root:       rapid.IntRange(0, size-1).Draw(t, "root"), Bytes: rapid.IntRange(0, 300).Draw(t, "bytes"),
		}
		s := shapeOf(o, size, chunk)
		at := 0
		for i := range s.shards {
			require.Equal(t, i, s.shard(s.rootOf(i)))
			for k := range s.chunks {
				require.Equal(t, at, s.offset(i, k))
				n := s.length(k)
				require.True(t, n > 0 && n <= chunk || o.Bytes == 0 && n == 0)
				at += n
			}
		}
		require.Equal(t, s.total(), at)
		if o.Collective == wire.Broadcast {
			require.Equal(t, -1, s.shard(o.Root+1))
		}
	})
}

// TestSubgroups checks that a root's runs are contiguous blocks of its shard,
// of a bitmap's word at most, that the groups take by turns; so that no group gets
// more than a block more than another, and each gets something if there is enough.
func TestSubgroups(t *testing.T) {
	for g := 1; g <= 9; g++ {
		for k := 1; k <= 1500; k += 1 + k/40 {
			c := New(Config{Rank: 0, Size: 2, Chunk: 1, Chains: 1, Subgroups: g, Lossless: true})
			seq, err := c.Post(0, Op{Collective: wire.Allgather, Bytes: k})
			require.NoError(t, err)
			sizes := make([]int, g)
			block, next := 0, 0
			for turn := 0; ; turn++ {
				var run Run
				ok := c.NextRun(&run)
				if !ok {
					break
				}
				require.Equal(t, next, int(run.Head.PSN))
				require.Equal(t, turn%g, int(run.Head.Subgroup))
				require.LessOrEqual(t, run.Count, 64)
				block = max(block, run.Count)
				sizes[run.Head.Subgroup] += run.Count
				next += run.Count
				c.Sent(seq, run.Count)
			}
			require.Equal(t, k, next)
			require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), block, "%d chunks over %d groups: %v", k, g, sizes)
			if k >= g {
				require.Positive(t, slices.Min(sizes))
			}
		}
	}
}
