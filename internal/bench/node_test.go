package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStartingASwitchEndsWithItsContext: nobody waits for a program that says nothing.
func TestStartingASwitchEndsWithItsContext(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "silent")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	_, err := startNode(ctx, silent)
	require.Less(t, time.Since(began), nodeStart/2)
	require.ErrorContains(t, err, "the switch could not be started: ")
	require.ErrorIs(t, err, context.Canceled)
}
