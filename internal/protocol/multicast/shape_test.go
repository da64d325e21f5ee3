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

// TestPlaceOfShards checks that each shard lies in its slot, in a buffer that begins with slot 0.
func TestPlaceOfShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, bytes := rapid.IntRange(1, 9).Draw(t, "ranks"), rapid.IntRange(0, 300).Draw(t, "bytes")
		stride := rapid.IntRange(bytes, 2*bytes+3).Draw(t, "stride")
		all := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).Draw(t, "slots")
		o := Op{Collective: wire.Allgather, Bytes: bytes, Stride: stride, Slots: all[:size]}
		require.NoError(t, o.check(&Config{Size: size, Chunk: 7}))
		s := shapeOf(o, size, 7)
		for r := range size {
			if bytes > 0 {
				require.Equal(t, all[r]*stride, s.offset(r, 0))
			}
			require.Equal(t, o.Start(r), s.offset(r, 0))
			require.Equal(t, o.Start(r)+14, s.offset(r, 2))
		}
		require.Equal(t, size*bytes, s.total(), "the gaps take nothing of the arena")
		packed, dense := s, shapeOf(Op{Collective: wire.Allgather, Bytes: bytes}, size, 7)
		packed.pack()
		require.Equal(t, dense, packed)
	})
	dense := Op{Collective: wire.Allgather, Bytes: 5, Stride: 5}
	require.True(t, dense.Dense())
	require.Equal(t, 15, dense.Start(3))
	cast := Op{Collective: wire.Broadcast, Root: 1, Bytes: 5, Stride: 9, Slots: []int{3, 2}}
	require.True(t, cast.Dense(), "a Broadcast has one shard, wherever an Allgather would have it")
	require.Zero(t, cast.Start(1))
	require.NoError(t, cast.check(&Config{Size: 4, Chunk: 1}))
	s := shapeOf(cast, 4, 2)
	require.Equal(t, 2, s.offset(0, 1))
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
