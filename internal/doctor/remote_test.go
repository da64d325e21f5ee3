package doctor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMeasureTakesWaitAlong uses a shell that writes the command to a file instead of starting it.
func TestMeasureTakesWaitAlong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	r := Remote{Shell: []string{"sh", "-c", `echo "$1" > ` + file}, Program: "mcast", Wait: 2 * time.Minute}
	_, _, err := Measure(t.Context(), []string{"host0"}, []Facts{{Host: "host0"}}, "host0:4000", "secret", r)
	require.ErrorContains(t, err, "no host measured")
	line, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(line), "'--wait=2m0s'")
}
