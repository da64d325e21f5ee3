package troubles

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/explain"
)

// named returns a case.
func named(t *testing.T, name string) *Case {
	t.Helper()
	i := slices.IndexFunc(Cases, func(c Case) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return &Cases[i]
}

// TestRight: a case is right if its trouble alone was named, at the ranks that have it.
func TestRight(t *testing.T) {
	slow, healthy, traffic, small := named(t, "slow rank"), named(t, "healthy"), named(t, "checkpoint traffic"),
		named(t, "small messages")
	said := func(cause string, ranks ...int) explain.Finding { return explain.Finding{Cause: cause, Ranks: ranks} }
	require.True(t, slow.right(2, []explain.Finding{said("slow-rank", 2)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-rank", 1)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-link", 2)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-rank", 2), said("slow-rank", 1)}))
	require.False(t, slow.right(2, nil))
	require.True(t, healthy.right(2, nil))
	require.False(t, healthy.right(2, []explain.Finding{said("slow-rank", 2)}))
	require.True(t, traffic.right(3, []explain.Finding{said("other-traffic", 0, 3)}))
	require.True(t, small.right(3, []explain.Finding{said("small-messages")}))
}

// TestAsked: the usual cases need no name, and a link of another rate does.
func TestAsked(t *testing.T) {
	usual, rate := named(t, "slow link"), named(t, "slow link of 60 Mbit/s")
	require.True(t, usual.Asked(nil))
	require.False(t, rate.Asked(nil))
	require.True(t, rate.Asked([]string{"small", "link of 60"}))
	require.False(t, usual.Asked([]string{"small", "link of 60"}))
}

// TestCells: in a cell a trouble costs as large a part of a step as in any other, and each case is one of a cell's
// once.
func TestCells(t *testing.T) {
	tried := 0
	for i := range Cases {
		c := &Cases[i]
		if !c.InCells() || !c.Asked(nil) {
			continue
		}
		tried++
		for _, bytes := range []int{64 << 10, 1 << 20, 4 << 20} {
			for _, compute := range []time.Duration{0, 15 * time.Millisecond} {
				cell := Cell{bytes, compute}
				p := c.plan(&cell)
				step := cell.step(p.Layers)
				require.GreaterOrEqual(t, c.Watched(&cell, time.Second), 4*cell.step(cell.plan().Layers))
				switch c.Cause {
				case "small-messages":
					require.LessOrEqual(t, p.Bytes, 16<<10)
					continue
				case "slow-rank":
					require.Greater(t, p.Slow*time.Duration(2*p.Layers), step/4, cell)
				case "late-now-and-then":
					require.Greater(t, p.Load, step, cell)
				}
				require.Equal(t, bytes, p.Bytes)
				require.Equal(t, compute, p.Compute)
			}
		}
	}
	require.Equal(t, 12, tried)
}
