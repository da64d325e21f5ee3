package systest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// ShortDir is t.TempDir for Unix sockets: their paths have 107 bytes at most. It is in /tmp, wherever TMPDIR is.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mcast-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
