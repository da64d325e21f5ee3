package world

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOddCallsAreDrawn: a share of all seeds has ranks that disagree, by nothing but the root in many, with
// nodes and without.
func TestOddCallsAreDrawn(t *testing.T) {
	for name, random := range map[string]func(uint64) Scenario{"groups": Random, "switches": Switched} {
		all, roots, nodes := 0, 0, 0
		for seed := range uint64(1000) {
			s := random(seed)
			for _, o := range s.Odds {
				c := s.Calls[o.Step-1]
				all++
				if c.Root != o.Call.Root {
					roots++
				}
				if s.twoLevels() != nil {
					nodes++
				}
			}
		}
		require.Greater(t, all, 100, name)
		require.Greater(t, roots, 40, name)
		require.Greater(t, nodes, 25, name)
		require.Less(t, nodes, all, name)
	}
}
