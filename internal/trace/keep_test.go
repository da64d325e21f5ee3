package trace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// TestName: a file's name is different for each process of all hosts and containers, and contains no path.
func TestName(t *testing.T) {
	for want, got := range map[string]string{
		"trace-node-7.example-42.json":                          trace.Name("node-7.example", "pid:[4026531836]", 42),
		"trace-node-4026532281-1.json":                          trace.Name("node", "pid:[4026532281]", 1),
		"trace-node-1.json":                                     trace.Name("node", "", 1),
		"trace--1.json":                                         trace.Name("", "", 1),
		"trace-.._.._a_b_-1.json":                               trace.Name("../../a b\x00", "", 1),
		"trace-" + strings.Repeat("h", 64) + "-4194304.json":    trace.Name(strings.Repeat("h", 300), "", 4194304),
		"trace-__-" + strings.Repeat("9", 64) + "-4194304.json": trace.Name("\xff\xc3", strings.Repeat("9", 300), 4194304),
	} {
		require.Equal(t, want, got)
	}
}

// TestContainers: processes of two PID namespaces have the same number and name of a host, and a file each. It needs
// root.
func TestContainers(t *testing.T) {
	const env = "TRACE_TEST_DIRECTORY"
	if dir := os.Getenv(env); dir != "" {
		require.Equal(t, 1, os.Getpid())
		_, err := trace.Take().WriteTo(dir)
		require.NoError(t, err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	dir := t.TempDir()
	hold := make([]*exec.Cmd, 2)
	for i := range hold {
		hold[i] = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestContainers$")
		hold[i].Env = append(os.Environ(), env+"="+dir)
		hold[i].SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		// neither is waited for before both are, which keeps the numbers of their namespaces apart
		require.NoError(t, hold[i].Start())
	}
	for _, c := range hold {
		require.NoError(t, c.Wait())
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
}

// TestSweep: what a killed process has left goes when the next trace is written; what may be written now, is of
// another name or a link stays, and what a link leads to.
func TestSweep(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	old := time.Now().Add(-2 * time.Hour)
	for name, at := range map[string]time.Time{
		"trace-a-1.json.123.part": old, "trace-a-2.json.456.part": time.Now(), "model.json.789.part": old,
		"trace-a-3.json": old,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	require.NoError(t, os.WriteFile(elsewhere, nil, 0o600))
	link := filepath.Join(dir, "trace-a-4.json.123.part")
	require.NoError(t, os.Symlink(elsewhere, link))
	then := unix.NsecToTimespec(old.UnixNano())
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, elsewhere, []unix.Timespec{then, then}, 0))
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, link, []unix.Timespec{then, then}, unix.AT_SYMLINK_NOFOLLOW))

	path, err := trace.Take().WriteTo(dir)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		path, link, filepath.Join(dir, "trace-a-2.json.456.part"), filepath.Join(dir, "model.json.789.part"),
		filepath.Join(dir, "trace-a-3.json"),
	}, files)
	require.FileExists(t, elsewhere)
}

// TestMergeFile: a file that is there, or came meanwhile, stays, and nothing is left of one that was not to be.
func TestMergeFile(t *testing.T) {
	from := put(t, "a.json", `{"traceEvents": []}`)
	dir := t.TempDir()
	out := filepath.Join(dir, "out.json")
	require.Error(t, trace.MergeFile(out, []string{put(t, "b.json", `{}`)}))
	require.NoError(t, trace.MergeFile(out, []string{from}))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.ErrorIs(t, trace.MergeFile(out, []string{from, from}), os.ErrExist)

	// One comes while the files are read: the second is a FIFO, which is read once this has made it.
	fifo, late := filepath.Join(t.TempDir(), "c.json"), filepath.Join(dir, "late.json")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	ended := make(chan error)
	go func() { ended <- trace.MergeFile(late, []string{fifo}) }()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // it reads by now
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(late, []byte("another's"), 0o600))
	_, err = w.WriteString(`{"traceEvents": []}`)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-ended, os.ErrExist)
	kept, err := os.ReadFile(late)
	require.NoError(t, err)
	require.Equal(t, "another's", string(kept))

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{out, late}, files)
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, text, again)
}

// TestPutNew: without hard links a file comes to its place as well, and another one stays.
func TestPutNew(t *testing.T) {
	for _, c := range []struct {
		link  error
		there bool
		want  error
	}{
		{nil, false, nil},
		{unix.EPERM, false, nil},
		{unix.EOPNOTSUPP, false, nil},
		{unix.ENOSYS, false, nil},
		{unix.EPERM, true, unix.EEXIST},
		{unix.EIO, false, unix.EIO},
	} {
		dir := t.TempDir()
		part, path := filepath.Join(dir, "part"), filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(part, []byte("ours"), 0o600))
		if c.there {
			require.NoError(t, os.WriteFile(path, []byte("another's"), 0o600))
		}
		err := trace.PutNew(part, path, func(from, to string) error {
			if c.link == nil {
				return os.Link(from, to)
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: c.link}
		})
		require.ErrorIs(t, err, c.want)
		text, err := os.ReadFile(path)
		switch {
		case c.there:
			require.Equal(t, "another's", string(text))
		case c.want != nil:
			require.ErrorIs(t, err, os.ErrNotExist)
		default:
			require.Equal(t, "ours", string(text))
			require.NoFileExists(t, part)
		}
	}
}
