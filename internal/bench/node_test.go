package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartingASwitchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := startNode(ctx, "false") // whatever it is, nobody waits for it
	require.ErrorContains(t, err, "the switch could not be started: ")
	require.ErrorIs(t, err, context.Canceled)
}
