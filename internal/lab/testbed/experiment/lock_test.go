package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	require.NoError(t, err)
	_, err = Lock(path)
	require.ErrorContains(t, err,
		fmt.Sprintf("another experiment is being done on this machine, by process %d, and", os.Getpid()))
	require.NoError(t, unlock())
	unlock, err = Lock(path)
	require.NoError(t, err, "what was given back can be had")
	require.NoError(t, unlock())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/etc/passwd", path))
	_, err = Lock(path)
	require.Error(t, err, "another user's link leads nowhere")
}

func TestProgress(t *testing.T) {
	p := progress{}
	require.Empty(t, p.String(), "nothing is known yet")
	p = progress{total: 10, now: func() time.Time { return time.Time{}.Add(time.Minute) }}
	require.Equal(t, "run 1 of 10", p.String())
	p.done = 4
	require.Equal(t, "run 5 of 10, about 1m30s left", p.String())
	p.done = 10
	require.Equal(t, "run 10 of 10", p.String())
}
