package sendlink

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

const inChild = "MCAST_TEST_UPLINK"

// noInterface has a number that no interface has.
var noInterface = &net.Interface{Index: 1<<30 + os.Getppid()}

// Groups of a process and other processes share a link; what another interface's is stays another.
func TestProcessesShare(t *testing.T) {
	if path := os.Getenv(inChild); path != "" {
		p, err := attach(path)
		require.NoError(t, err)
		New(p.words, monotonic()).Claim(fabric.Multicast, 50*time.Millisecond)
		os.Exit(0) // without taking leave, as one that is killed
	}
	path := filepath.Join(t.TempDir(), "page")
	p, err := attach(path)
	require.NoError(t, err)
	mine := New(p.words, monotonic())
	require.Zero(t, mine.Claimed(fabric.Multicast))
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestProcessesShare$")
	child.Env = append(os.Environ(), inChild+"="+path)
	before := mine.clock()
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	until := time.Duration(p.words.until[fabric.Multicast].Load())
	require.Greater(t, until, before, "both have the same clock")
	require.LessOrEqual(t, until, mine.clock()+50*time.Millisecond)
	require.NoError(t, p.close())
	require.NoFileExists(t, path, "nobody has it open")
}

func TestOpen(t *testing.T) {
	a, err := Open(noInterface)
	require.NoError(t, err)
	b, err := Open(noInterface)
	require.NoError(t, err)
	other, err := Open(&net.Interface{Index: noInterface.Index + 1})
	require.NoError(t, err)
	a.Claim(fabric.Behind, fabric.MostClaimed) // it may have lapsed when the others look
	require.Positive(t, b.words.until[fabric.Behind].Load())
	require.Zero(t, other.words.until[fabric.Behind].Load())
	path := pages.at[a.at].path
	require.FileExists(t, path)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "again is harmless")
	require.FileExists(t, path)
	require.NoError(t, b.Close())
	require.NoError(t, other.Close())
	require.NoFileExists(t, path)
	require.Empty(t, pages.at)
}

// A process that still has a page open keeps it, and one that comes while it is removed gets a new
// one.
func TestLastOneRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	a, err := attach(path)
	require.NoError(t, err)
	b, err := attach(path)
	require.NoError(t, err)
	require.NoError(t, a.close())
	require.FileExists(t, path)
	require.NoError(t, b.close())
	require.NoFileExists(t, path)
	c := openPage(path)
	require.NoError(t, c.why)
	require.NoError(t, c.close())
}

// A page that others could write to, or that is none, is not used; the link works all the same.
func TestOthersPages(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"for all":   func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"a folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"elsewhere": func(path string) error { return os.Symlink("/etc/passwd", path) },
		"of another": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 1, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of another" && os.Geteuid() != 0 {
				t.Skip("needs root to give a file away")
			}
			path := filepath.Join(t.TempDir(), "page")
			require.NoError(t, make(path))
			if name == "for all" {
				require.NoError(t, os.Chmod(path, 0o666)) // for any umask
			}
			p := openPage(path)
			require.ErrorContains(t, p.why, path)
			l := New(p.words, monotonic())
			l.Claim(fabric.Multicast, time.Minute)
			require.Positive(t, l.Claimed(fabric.Multicast))
			require.NoError(t, p.close())
		})
	}
}

// What killed processes leave is removed, what somebody has open is not.
func TestSweep(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "page-")
	open, err := attach(prefix + "1")
	require.NoError(t, err)
	left, err := attach(prefix + "2")
	require.NoError(t, err)
	require.NoError(t, unix.Munmap(left.mem))
	require.NoError(t, unix.Close(left.fd))
	sweep(prefix)
	require.FileExists(t, open.path)
	require.NoFileExists(t, left.path)
	require.NoError(t, open.close())
}
