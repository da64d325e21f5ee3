package monitor

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// TestPlaceThatCannotBeHad: a user who has named the place is told.
func TestPlaceThatCannotBeHad(t *testing.T) {
	settings := config.Default()
	settings.Metrics = "/proc/no/such/place"
	said := new(bytes.Buffer)
	none := func(*mesh.Fault) {}
	m := New(Config{
		Plan: &team.Plan{Size: 1, Settings: settings}, Log: slog.New(slog.NewTextHandler(said, nil)), Seen: new(Process),
		Mesh: mesh.New(0, 1, nil, settings.Timeout, settings.Timeout, none, func(int, mesh.Posted) {}),
	})
	t.Cleanup(m.mesh.Close)
	m.publish()
	require.Contains(t, said.String(), "level=WARN")
	require.Contains(t, said.String(), "/proc/no/such/place")
}

// TestOneTraceForManyGroups: one dead rank fails many groups of a process, and only the first writes the trace.
func TestOneTraceForManyGroups(t *testing.T) {
	p := new(Process)
	wanted := func(*trace.Trace) bool { return true }
	require.Nil(t, p.takeTrace(func(*trace.Trace) bool { return false }), "it is not wanted")
	require.NotNil(t, p.takeTrace(wanted))
	require.Nil(t, p.takeTrace(wanted))
}

// TestNoTraceAtSignal: a place where no file can be is said, with the cause, and nothing else happens.
func TestNoTraceAtSignal(t *testing.T) {
	file, said := filepath.Join(t.TempDir(), "file"), new(bytes.Buffer)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	DumpAtSignal(filepath.Join(file, "traces"), slog.New(slog.NewTextHandler(said, nil)))
	require.Contains(t, said.String(), "no trace was written at SIGUSR2")
	require.Contains(t, said.String(), file+": not a directory")
}
