package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// TestMeasureTakesWaitAlong uses a shell that writes the command to a file instead of starting it.
func TestMeasureTakesWaitAlong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	r := remote{shell: []string{"sh", "-c", `echo "$1" > ` + file}, program: "mcast", wait: 2 * time.Minute}
	_, _, err := r.measure(t.Context(), []string{"host0"}, []doctor.Facts{{Host: "host0"}}, "host0:4000", "secret")
	require.ErrorContains(t, err, "no host measured")
	line, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(line), "--wait=2m0s")
}
