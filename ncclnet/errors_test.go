package main

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
)

// TestCodeOfARefusal: ranks started for groups of different sizes disagree, and nothing is broken.
func TestCodeOfARefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	host := make(chan error, 1)
	go func() {
		_, err := bootstrap.Meeting{}.RendezvousOn(ctx, ln, 2, nil)
		host <- err
	}()
	_, err = bootstrap.Rendezvous(t.Context(), ln.Addr().String(), 2, 3, nil)
	cancel()
	require.Error(t, <-host)
	require.ErrorContains(t, err, "rank 0 was started for 2 ranks")
	const mismatch = 5 // MCAST_E_MISMATCH
	require.EqualValues(t, mismatch, code(fmt.Errorf("init: %w", err)))
}
