package bench

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestDumpOnSignal: SIGUSR2 writes what the process did last, and does not end it.
func TestDumpOnSignal(t *testing.T) {
	dir := t.TempDir()
	dumping = sync.Once{} // of another run of this test
	dumpOnSignal(&config.Settings{Trace: dir})
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGUSR2))
	systest.Eventually(t, func() bool {
		found, err := filepath.Glob(filepath.Join(dir, "trace-*.json"))
		return err == nil && len(found) == 1
	}, "no trace was written")
}
