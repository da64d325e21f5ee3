package collnet

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestFunctionThatDoesNotReturn: f ends its goroutine as t.FailNow does, and the other rank gets an error.
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
	err := systest.Receive(t, ended, "the other rank waits for one that is gone")
	require.ErrorContains(t, err, "its function ended without returning")
	var gone *RankError
	require.ErrorAs(t, err, &gone)
	require.Equal(t, []any{1, RankAborted}, []any{gone.Rank, gone.Reason})
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
