package experiment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRacksLaw counts the edges that leave a rack, on the ring in the order of numbers and on one that goes
// through one rack after the other.
func TestRacksLaw(t *testing.T) {
	for _, hosts := range []int{4, 8, 10} {
		leaving := func(order []int) (edges int) {
			for i, h := range order {
				if next := order[(i+1)%hosts]; h < hosts/2 && next >= hosts/2 {
					edges++
				}
			}
			return edges
		}
		var sorted []int
		for h := range hosts {
			sorted = append(sorted, h)
		}
		require.ElementsMatch(t, sorted, byTurns(hosts))
		for known, order := range map[bool][]int{false: byTurns(hosts), true: sorted} {
			require.Equal(t, float64(leaving(order)*(hosts-1)*3*1000), racksLaw(known, hosts, 3, 1000))
		}
	}
}
