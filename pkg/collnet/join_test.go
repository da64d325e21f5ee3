package collnet

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFunctionThatDoesNotReturn: it ends as t.FailNow does, and the other rank hears of it.
func TestFunctionThatDoesNotReturn(t *testing.T) {
	ended := make(chan error, 1)
	go func() {
		ended <- InProcess(t.Context(), 2, Options{}, func(g *Group) error {
			if g.Rank() == 1 {
				runtime.Goexit()
			}
			return g.Barrier(t.Context())
		})
	}()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "its function ended without returning")
		var gone *RankError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, []any{1, RankAborted}, []any{gone.Rank, gone.Reason})
	case <-time.After(bound):
		require.Fail(t, "the other rank waits for one that is gone")
	}
}

// TestBlobIsACopy: who writes into it changes nothing of the endpoint.
func TestBlobIsACopy(t *testing.T) {
	e, err := Listen(0, 1, Options{})
	require.NoError(t, err)
	defer e.Close()
	before := string(e.Blob())
	clear(e.Blob())
	require.Equal(t, before, string(e.Blob()))
}
