package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestStartingASwitchEndsWithItsContext: nobody waits for a program that says nothing.
func TestStartingASwitchEndsWithItsContext(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "silent")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := startNode(ctx, silent, 24*time.Hour)
		ended <- err
	}()
	err := systest.Receive(t, ended)
	require.ErrorContains(t, err, "the switch could not be started: ")
	require.ErrorIs(t, err, context.Canceled)
}
