package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A watcher asks from another goroutine; the driver answers in its next round.
func TestWaitingIsAnsweredByTheDriver(t *testing.T) {
	g, f := rank0()
	_, err := g.Submit(allgather(2), nil)
	require.NoError(t, err)
	require.Nil(t, g.Waiting(), "nobody has looked yet")
	g.Work()
	w := g.Waiting()
	require.Equal(t, "2 chunk(s) have not come", w.Why)
	require.Equal(t, []int{1}, w.Ranks)
	f.now = 5 * time.Millisecond
	g.Work()
	w = g.Waiting()
	require.Equal(t, f.now, w.Idle)
	require.Equal(t, f.now, w.At)
	f.arrive(0, 0, 2, 2)
	g.Work()
	require.Nil(t, g.Waiting(), "it is done")
}
