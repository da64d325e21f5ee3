package route

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPauses: ranks that wait at the node for each other meet, at any phase.
func TestPauses(t *testing.T) {
	const kept = 30 * time.Second // a node keeps a rank that waits for others
	require.Less(t, 2*lastPause, kept+1)
	drawn := map[time.Duration]bool{}
	for rank := range 8 {
		for epoch := range uint32(8) {
			p := jitter(lastPause, rank, epoch)
			require.Equal(t, p, jitter(lastPause, rank, epoch))
			require.LessOrEqual(t, p, lastPause)
			require.GreaterOrEqual(t, p, lastPause*3/4)
			drawn[p] = true
		}
	}
	require.Len(t, drawn, 64)
}
