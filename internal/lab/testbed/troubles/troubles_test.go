package troubles

import (
	"slices"
	"testing"

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
	slow, healthy, traffic, small := named(t, "slow rank"), named(t, "healthy"), named(t, "checkpoint traffic"), named(t, "small messages")
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
