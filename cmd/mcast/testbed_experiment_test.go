package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/experiment"
)

// An experiment of an ordinary user whose time is over keeps what it has measured, and says so.
func TestExperimentWhoseTimeIsOver(t *testing.T) {
	requireRootless(t)
	dir := filepath.Join(forAll, "results")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	cmd, stdout, stderr := ordinary(t, "testbed", "experiment", "unicast", "--hosts", "2", "--bytes", "4K", "--peers", "mcast", "--rounds", "1000",
		"--within", "10s", "--out", dir, "--lock-file", filepath.Join(dir, "lock"))
	var failed *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &failed)
	require.Equal(t, 124, failed.ExitCode(), stderr)
	kept := filepath.Join(dir, "unicast.partial.ndjson")
	require.Contains(t, stderr.String(), "the time that --within allows is over: 10s; what it had measured is in "+kept)
	require.Contains(t, stdout.String(), "allgather")
	require.FileExists(t, kept)
}

// Two experiments at once on a machine measure each other.
func TestSecondExperiment(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	unlock, err := experiment.Lock(lock)
	require.NoError(t, err)
	cmd, _, stderr := mcast(t, nil, "testbed", "experiment", "unicast", "--out", t.TempDir(), "--lock-file", lock)
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), fmt.Sprintf("another experiment is being done on this machine, by process %d", os.Getpid()))
	require.NoError(t, unlock())
}

func TestExitCodeOfExperimentsThatWereEnded(t *testing.T) {
	require.Equal(t, 130, (&endedEarly{errors.New("interrupted")}).ExitCode())
	require.Equal(t, 124, (&endedEarly{fmt.Errorf("late: %w", errWithin)}).ExitCode())
}
