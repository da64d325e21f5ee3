package hierarchy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// TestPostsDoNotWaitForEachOther: while one is posted on a lane, others are, on either.
func TestPostsDoNotWaitForEachOther(t *testing.T) {
	a := &team.Plan{Size: 1, Settings: config.Default(), Column: team.Everyone(0, 1)}
	o := New(Config{Plan: a, Column: undrivenLevel(t, &a.Column), Posted: func(overlap.Class) {}})
	o.posting.RLock() // as a post that takes its time
	defer o.posting.RUnlock()
	b := make([]byte, 8)
	_, err := o.Allgather(b, b, b)
	require.NoError(t, err)
	_, err = o.ReduceScatter(b, b, collective.Op{Type: reduce.I32, Reduction: reduce.Sum})
	require.NoError(t, err)
}

// TestSizeClasses: a size is in the first class that holds it.
func TestSizeClasses(t *testing.T) {
	for bytes, class := range map[int]int{
		0: 0, 4 << 10: 0, 4<<10 + 1: 1, 1 << 20: 2, 16 << 20: 3, 16<<20 + 1: 4, 1 << 40: 4,
	} {
		var b books
		require.Same(t, &b[2][class], b.of(2, bytes), "%d", bytes)
	}
}
