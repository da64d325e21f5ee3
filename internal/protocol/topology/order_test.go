package topology

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrder: a graph with an order is the plain one with its ranks renamed.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= 20; size++ {
		ring := r.Perm(size)
		o := NewOrder(ring)
		named := func(places []int) []int {
			ranks := make([]int, len(places))
			for i, p := range places {
				ranks[i] = ring[p]
			}
			return ranks
		}
		for place, rank := range ring {
			plain, g := Graph{Rank: place, Size: size}, Graph{rank, size, o}
			near := plain.Neighbours()
			require.Equal(t, named(near), append([]int{}, g.Neighbours()[:len(near)]...))
			if size > 1 {
				require.Contains(t, g.Neighbours(), (rank+1)%size)
				require.Contains(t, Graph{(rank + 1) % size, size, o}.Neighbours(), rank)
			}
			require.Equal(t, ring[plain.Left()], g.Left())
			require.Equal(t, ring[plain.Right()], g.Right())
			for k := range g.Rounds() {
				require.Equal(t, ring[plain.To(k)], g.To(k))
				require.Equal(t, ring[plain.From(k)], g.From(k))
			}
			require.Equal(t, plain.AllChildren(), g.AllChildren())
			for at, root := range ring {
				require.Equal(t, ring[plain.Parent(at)], g.Parent(root))
				require.Equal(t, plain.Children(at), g.Children(root))
				require.Equal(t, plain.FirstChild(at), g.FirstChild(root))
				for other := range size {
					require.Equal(t, plain.ChildIndex(at, other), g.ChildIndex(root, ring[other]))
				}
			}
		}
	}
	require.Nil(t, NewOrder([]int{0, 1, 2}))
}
