package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/experiment"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// When the time for an experiment of an ordinary user is over, it keeps its measurements, and says so.
func TestExperimentWhoseTimeIsOver(t *testing.T) {
	requireRootless(t)
	dir := filepath.Join(forAll, "results")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	kept := filepath.Join(dir, "unicast.partial.ndjson")
	for within := 5 * time.Second; ; within *= 2 { // a machine that is busy may have measured nothing yet
		require.Less(t, within, systest.Limit, "nothing was measured")
		cmd, stdout, stderr := ordinary(t, "testbed", "experiment", "unicast", "--hosts", "2", "--bytes", "4K", "--peers",
			"mcast", "--rounds", "100000",
			"--within", within.String(), "--out", dir, "--lock-file", filepath.Join(dir, "lock"))
		var failed *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &failed)
		require.Equal(t, 124, failed.ExitCode(), stderr)
		require.Contains(t, stderr.String(), "the time that --within allows is over: "+within.String())
		if _, err := os.Stat(kept); err != nil {
			continue
		}
		require.Contains(t, stderr.String(), "; its measurements are in "+kept)
		require.Contains(t, stdout.String(), "allgather")
		return
	}
}

// Two experiments at once on a machine measure each other.
func TestSecondExperiment(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	unlock, err := experiment.Lock(lock)
	require.NoError(t, err)
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "mcast"), nil, 0o755)) // which nobody runs
	cmd, _, stderr := lab(t, []string{"PATH=" + path}, "testbed", "experiment", "unicast", "--out", t.TempDir(),
		"--lock-file", lock)
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(),
		fmt.Sprintf("another experiment is being done on this machine, by process %d", os.Getpid()))
	require.NoError(t, unlock())
}

func TestExitCodeOfExperimentsThatWereEnded(t *testing.T) {
	require.Equal(t, 130, (&endedEarly{errors.New("interrupted")}).ExitCode())
	require.Equal(t, 124, (&endedEarly{fmt.Errorf("late: %w", errWithin)}).ExitCode())
}
