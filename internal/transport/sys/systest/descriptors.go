package systest

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Descriptors returns the targets of all descriptors that are open in a process that runs a test
// Alone, sorted. A duplicate has the same target as the original.
func Descriptors(t testing.TB) []string {
	t.Helper()
	return slices.Sorted(maps.Values(descriptors(t)))
}

// WithDescriptors runs f while a process that runs a test Alone can open so many more, but for those
// that f closes.
func WithDescriptors(t testing.TB, spare int, f func()) {
	t.Helper()
	var holes []int // the limit is one of numbers, so those below the last are filled
	defer func() {
		for _, fd := range holes {
			require.NoError(t, unix.Close(fd))
		}
	}()
	last := slices.Max(slices.Collect(maps.Keys(descriptors(t))))
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		if fd > last {
			require.NoError(t, unix.Close(fd))
			break
		}
		holes = append(holes, fd)
	}
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last + 1 + spare), Max: before.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
	f()
}

// descriptors returns what each open descriptor refers to.
func descriptors(t testing.TB) map[int]string {
	t.Helper()
	require.NotEmpty(t, os.Getenv(aloneEnv),
		"what other tests left behind may close at any moment: want this test to be Alone")
	dir, err := os.Open("/proc/self/fd")
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.Close()) }()
	names, err := dir.Readdirnames(-1)
	require.NoError(t, err)
	open := make(map[int]string)
	for _, name := range names {
		to, err := os.Readlink(filepath.Join(dir.Name(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed since
		}
		require.NoError(t, err)
		fd, err := strconv.Atoi(name)
		require.NoError(t, err)
		open[fd] = to
	}
	delete(open, int(dir.Fd()))
	return open
}
