package multicast

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestTree checks every root's credit tree for every number of ranks up to 64.
func TestTree(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for root := range size {
			parents := 0
			for rank := range size {
				top := topology{rank, size}
				depth, r := 0, rank
				for r != root {
					r = topology{r, size}.parent(root)
					depth++
					require.LessOrEqual(t, depth, bits.Len(uint(size-1)), "rank %d of %d never reaches root %d", rank, size, root) //nolint:gosec // positive
				}
				for j := range top.children(root) {
					child := (rank + 1<<j) % size
					require.Equal(t, rank, topology{child, size}.parent(root), "child %d of rank %d of %d, root %d", j, rank, size, root)
					require.Equal(t, j, top.childIndex(root, child))
					require.Contains(t, Neighbours(rank, size), child)
					parents++
				}
				for other := range size {
					isChild := other != root && topology{other, size}.parent(root) == rank
					require.Equal(t, isChild, top.childIndex(root, other) >= 0, "rank %d of %d, root %d, other %d", rank, size, root, other)
				}
			}
			require.Equal(t, size-1, parents, "edges of root %d's tree of %d ranks", root, size)
		}
	}
}

func TestNeighboursAreMutual(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for rank := range size {
			n := Neighbours(rank, size)
			assert.NotContains(t, n, rank)
			for _, p := range n {
				require.Contains(t, Neighbours(p, size), rank)
			}
			sorted := slices.Clone(n)
			slices.Sort(sorted)
			require.Len(t, slices.Compact(sorted), len(n))
			top := topology{rank, size}
			for k := range top.rounds() {
				require.Contains(t, n, top.to(k))
				require.Equal(t, rank, topology{top.to(k), size}.from(k))
			}
			if size > 1 {
				require.Contains(t, n, top.left())
				require.Contains(t, n, top.right())
			}
		}
	}
}

// TestDissemination follows who has heard of whom, round by round.
func TestDissemination(t *testing.T) {
	for size := 1; size <= 64; size++ {
		heard := make([]uint64, size)
		for r := range heard {
			heard[r] = 1 << r
		}
		for k := range (topology{0, size}).rounds() {
			before := slices.Clone(heard)
			for r := range heard {
				heard[r] |= before[topology{r, size}.from(k)]
			}
		}
		for r, h := range heard {
			require.Equal(t, size, bits.OnesCount64(h), "rank %d of %d", r, size)
		}
	}
}

func TestChains(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for m := 1; m <= size; m++ {
			c := chains{size, m}
			require.Zero(t, c.head(0))
			require.Equal(t, size, c.head(m))
			for ch := range m {
				n := c.head(ch+1) - c.head(ch)
				require.True(t, n == size/m || n == (size+m-1)/m, "chain %d of %d over %d ranks has %d", ch, m, size, n)
				for r := c.head(ch); r < c.head(ch+1); r++ {
					require.Equal(t, ch, c.of(r))
				}
			}
		}
	}
}

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
				require.Equal(t, at, s.offset(i, k, chunk))
				n := s.length(k, chunk)
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
				run, ok := c.NextRun()
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

// The numbers of a rank's children in all trees do not overlap, and are dense enough.
func TestChildNumbers(t *testing.T) {
	for size := 1; size <= 130; size++ {
		for rank := range size {
			topo := topology{rank, size}
			taken := make([]bool, topo.allChildren())
			for root := range size {
				for j := range topo.children(root) {
					n := topo.firstChild(root) + j
					require.False(t, taken[n], "rank %d of %d, root %d, child %d", rank, size, root, j)
					taken[n] = true
				}
			}
			require.LessOrEqual(t, len(taken), size+topo.rounds())
		}
	}
}
