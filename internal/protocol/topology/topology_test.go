package topology

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTree checks every root's credit tree for every number of ranks up to 64.
func TestTree(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for root := range size {
			parents := 0
			for rank := range size {
				top := Graph{Rank: rank, Size: size}
				depth, r := 0, rank
				for r != root {
					r = Graph{Rank: r, Size: size}.Parent(root)
					depth++
					require.LessOrEqual(t, depth, bits.Len(uint(size-1)), "rank %d of %d never reaches root %d", rank, size, root)
				}
				for j := range top.Children(root) {
					child := (rank + 1<<j) % size
					require.Equal(t, rank, Graph{Rank: child, Size: size}.Parent(root), "child %d of rank %d of %d, root %d", j, rank,
						size, root)
					require.Equal(t, j, top.ChildIndex(root, child))
					require.Contains(t, Graph{Rank: rank, Size: size}.Neighbours(), child)
					parents++
				}
				for other := range size {
					isChild := other != root && Graph{Rank: other, Size: size}.Parent(root) == rank
					require.Equal(t, isChild, top.ChildIndex(root, other) >= 0, "rank %d of %d, root %d, other %d", rank, size, root,
						other)
				}
			}
			require.Equal(t, size-1, parents, "edges of root %d's tree of %d ranks", root, size)
		}
	}
}

func TestNeighboursAreMutual(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for rank := range size {
			n := Graph{Rank: rank, Size: size}.Neighbours()
			assert.NotContains(t, n, rank)
			for _, p := range n {
				require.Contains(t, Graph{Rank: p, Size: size}.Neighbours(), rank)
			}
			sorted := slices.Clone(n)
			slices.Sort(sorted)
			require.Len(t, slices.Compact(sorted), len(n))
			top := Graph{Rank: rank, Size: size}
			for k := range top.Rounds() {
				require.Contains(t, n, top.To(k))
				require.Equal(t, rank, Graph{Rank: top.To(k), Size: size}.From(k))
			}
			if size > 1 {
				require.Contains(t, n, top.Left())
				require.Contains(t, n, top.Right())
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
		for k := range (Graph{Rank: 0, Size: size}).Rounds() {
			before := slices.Clone(heard)
			for r := range heard {
				heard[r] |= before[Graph{Rank: r, Size: size}.From(k)]
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
			c := NewChains(size, m)
			require.Zero(t, c.Head(0))
			require.Equal(t, size, c.Head(m))
			for ch := range m {
				n := c.Head(ch+1) - c.Head(ch)
				require.True(t, n == size/m || n == (size+m-1)/m, "chain %d of %d over %d ranks has %d", ch, m, size, n)
				for r := c.Head(ch); r < c.Head(ch+1); r++ {
					require.Equal(t, ch, c.Of(r))
				}
			}
		}
	}
}

// The numbers of a rank's children in all trees do not overlap, and are dense enough.
func TestChildNumbers(t *testing.T) {
	for size := 1; size <= 130; size++ {
		for rank := range size {
			topo := Graph{Rank: rank, Size: size}
			taken := make([]bool, topo.AllChildren())
			for root := range size {
				for j := range topo.Children(root) {
					n := topo.FirstChild(root) + j
					require.False(t, taken[n], "rank %d of %d, root %d, child %d", rank, size, root, j)
					taken[n] = true
				}
			}
			require.LessOrEqual(t, len(taken), size+topo.Rounds())
		}
	}
}

// Distances are the distances of the neighbours, the same for every rank.
func TestDistances(t *testing.T) {
	assert.Empty(t, Distances(1))
	assert.Equal(t, []int{1}, Distances(2))
	assert.Equal(t, []int{1, 2}, Distances(3))
	assert.Equal(t, []int{1, 2, 3}, Distances(4))
	assert.Equal(t, []int{1, 2, 4, 5, 7, 8}, Distances(9))
	for size := 1; size <= 64; size++ {
		for rank := range size {
			var want []int
			for _, p := range (Graph{Rank: rank, Size: size}).Neighbours() {
				want = append(want, (p-rank+size)%size)
			}
			slices.Sort(want)
			require.Equal(t, want, Distances(size), "rank %d of %d", rank, size)
		}
	}
}
