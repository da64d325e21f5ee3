package reducescatter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An Allgather at rank a and a Reduce-Scatter at owner b, which move on from rank to rank: of the
// two one goes, unless they are at the same rank. However they begin, they run in step before either
// has waited for more than half of the ranks, and do so for ever.
func TestInStepSoon(t *testing.T) {
	for ranks := 2; ranks <= 33; ranks++ {
		for a := range ranks {
			for b := range ranks {
				waited := [2]int{}
				for gather, reduce := a, b; gather != reduce; {
					if precedes(reduce, gather, ranks) {
						reduce = (reduce + 1) % ranks
						waited[0]++
					} else {
						gather = (gather + 1) % ranks
						waited[1]++
					}
					require.LessOrEqual(t, waited[0]+waited[1], ranks/2, "%d ranks, from %d and %d", ranks, a, b)
				}
				require.False(t, waited[0] > 0 && waited[1] > 0, "both have waited: %d ranks, from %d and %d", ranks, a, b)
			}
		}
	}
}

// What a rank multicasts in its own turn never waits for contributions to itself.
func TestOwnNeverPrecedes(t *testing.T) {
	for ranks := 1; ranks <= 33; ranks++ {
		for rank := range ranks {
			require.False(t, precedes(rank, rank, ranks))
		}
	}
}
