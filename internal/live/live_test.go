package live_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestMain(m *testing.M) {
	*live.Patience = systest.Limit
	os.Exit(m.Run())
}

// sockets returns the names in a directory.
func sockets(t *testing.T, directory string) []string {
	all, err := filepath.Glob(filepath.Join(directory, "*.sock"))
	require.NoError(t, err)
	return all
}

// TestPublish: a process has one socket for all its pages, for its user alone, until the last is withdrawn.
func TestPublish(t *testing.T) {
	t.Setenv("TORCHELASTIC_RUN_ID", "llama")
	dir := filepath.Join(systest.ShortDir(t), "new")
	first, err := live.Publish(dir, func() any { return "one" }, nil)
	require.NoError(t, err)
	second, err := live.Publish(dir, func() any { return "two" }, nil)
	require.NoError(t, err)

	require.Len(t, sockets(t, dir), 1)
	info, err := os.Stat(sockets(t, dir)[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	read := func() []live.Process[string] {
		pages, errs := live.Read[string]([]string{dir})
		require.Empty(t, errs)
		return pages
	}
	pages := read()
	require.Len(t, pages, 1)
	require.Equal(t, []string{"one", "two"}, pages[0].Groups)
	require.Equal(t, os.Getpid(), pages[0].PID)
	require.Equal(t, "llama", pages[0].Run)
	require.Less(t, pages[0].At, read()[0].At, "rates are over the process's own time")

	first()
	require.Equal(t, []string{"two"}, read()[0].Groups)
	second()
	require.Empty(t, sockets(t, dir))
	again, err := live.Publish(dir, func() any { return "three" }, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"three"}, read()[0].Groups)
	again()
}

// leave makes a socket as a process of a number has left it.
func leave(t *testing.T, path string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

// TestSocketsOfTheDead are nothing to those who read, and the next process removes them.
func TestSocketsOfTheDead(t *testing.T) {
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	dir := systest.ShortDir(t)
	dead := filepath.Join(dir, strconv.Itoa(ended.Process.Pid)+"-1.sock")
	alive := filepath.Join(dir, strconv.Itoa(os.Getppid())+"-1.sock")
	leave(t, dead)
	leave(t, alive)
	pages, errs := live.Read[string]([]string{dir})
	require.Empty(t, pages)
	require.Empty(t, errs)

	withdraw, err := live.Publish(dir, func() any { return "one" }, nil)
	require.NoError(t, err)
	defer withdraw()
	require.NoFileExists(t, dead)
	require.FileExists(t, alive, "nobody else knows whether it will listen")
}

// TestWhoDoesNotAnswer is told of, beside the pages of the others.
func TestWhoDoesNotAnswer(t *testing.T) {
	dir := systest.ShortDir(t)
	l, err := net.Listen("unix", filepath.Join(dir, "1-1.sock"))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	withdraw, err := live.Publish(dir, func() any { return "one" }, nil)
	require.NoError(t, err)
	defer withdraw()
	systest.Eventually(t, func() bool { // a machine that is busy may be too late with the other, too
		pages, errs := live.ReadWithin[string](50*time.Millisecond, []string{dir})
		for _, err := range errs {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		return len(pages) == 1 && len(errs) == 1 && strings.Contains(errs[0].Error(), "1-1.sock")
	})
}

// TestDirectoryOfAnother: what others can write to is not taken for this user's.
func TestDirectoryOfAnother(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"open": func(path string) error {
			defer unix.Umask(unix.Umask(0))
			return os.Mkdir(path, 0o777)
		},
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"link": func(path string) error { return os.Symlink(t.TempDir(), path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mcast")
			require.NoError(t, make(path))
			require.ErrorContains(t, live.Own(path), "is not a directory of this user alone (mode 0700)")
		})
	}
	path := filepath.Join(t.TempDir(), "mcast")
	require.NoError(t, live.Own(path))
	require.NoError(t, live.Own(path), "it is there")
}

// TestDirectory: one in which another user could take our socket away, or put one in its place, is refused.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(systest.ShortDir(t), "d")
	_, err := live.Make(dir)
	require.NoError(t, err)
	for mode, ok := range map[os.FileMode]bool{
		0o700: true, 0o755: true, 0o777 | os.ModeSticky: true, 0o777: false, 0o770: false,
	} {
		require.NoError(t, os.Chmod(dir, mode))
		if _, err := live.Make(dir); ok {
			require.NoError(t, err, mode)
		} else {
			require.ErrorContains(t, err, dir)
			_, err = live.Publish(dir, func() any { return "" }, nil)
			require.ErrorContains(t, err, "is not safe from other users")
		}
	}
}

// TestPageWithoutEnd: who publishes without end is an error, and no memory.
func TestPageWithoutEnd(t *testing.T) {
	dir := systest.ShortDir(t)
	withdraw, err := live.Publish(dir, func() any { return strings.Repeat("x", 9<<20) }, nil)
	require.NoError(t, err)
	defer withdraw()
	systest.Eventually(t, func() bool { // a busy machine may take longer over so much than a page has
		pages, errs := live.Read[string]([]string{dir})
		require.Empty(t, pages)
		require.Len(t, errs, 1)
		return strings.Contains(errs[0].Error(), "more than 8388608 bytes")
	})
}

// TestClaimedPID: the kernel says which process a page belongs to.
func TestClaimedPID(t *testing.T) {
	dir := systest.ShortDir(t)
	l, err := net.Listen("unix", filepath.Join(dir, "1-1.sock"))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte(`{"pid": 1}`)) // else nothing is read
			_ = c.Close()
		}
	}()
	pages, errs := live.Read[string]([]string{dir})
	require.Empty(t, errs)
	require.Len(t, pages, 1)
	require.Equal(t, os.Getpid(), pages[0].PID)
}

// TestJob: a process answers for the ranks of its groups, for its user alone, until they are withdrawn.
func TestJob(t *testing.T) {
	dir := systest.ShortDir(t)
	withdraw, err := live.Publish(dir, func() any { return "one" },
		&live.Job{Group: "abc", Ask: func(skip []int) any { return skip }})
	require.NoError(t, err)
	pages, errs := live.ReadSoon[string]([]string{dir})
	require.Empty(t, errs)
	require.Len(t, pages, 1)
	found, err := filepath.Glob(filepath.Join(dir, "*.job"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	info, err := os.Stat(found[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	var said []int
	require.NoError(t, pages[0].Ask(t.Context(), "abc", []int{1, 3}, &said))
	require.Equal(t, []int{1, 3}, said)
	require.Equal(t, &live.EndedError{Group: "abd"}, pages[0].Ask(t.Context(), "abd", nil, &said))
	withdraw()
	require.Equal(t, &live.EndedError{Group: "abc"}, pages[0].Ask(t.Context(), "abc", nil, &said))
	require.NoFileExists(t, found[0])
}
