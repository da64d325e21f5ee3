package ibverbs

import (
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// standIn returns a device of testdata/library.c, which takes the place of libibverbs.
func standIn(t *testing.T, flags ...string) *Device {
	t.Helper()
	library := compiled(t, "library.c", flags...)
	loaded = func() error { return load(library) }
	t.Cleanup(func() { loaded = sync.OnceValue(func() error { return load(Library) }) })
	lo, err := net.InterfaceByIndex(1)
	require.NoError(t, err)
	d, err := Open(lo, netip.MustParseAddr("127.0.0.1"))
	require.NoError(t, err)
	return d
}

// compiled compiles a library of testdata.
func compiled(t *testing.T, source string, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	library := filepath.Join(t.TempDir(), source+".so")
	out, err := exec.Command(cc,
		append(flags, "-std=gnu11", "-shared", "-fPIC", "-o", library, "testdata/"+source)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return library
}

const page = 4096

// TestRegistrarKeeps: with the cache a device registers a buffer once, and no longer than somebody refers to it.
func TestRegistrarKeeps(t *testing.T) {
	d := standIn(t)
	c := gpudirect.NewCache(Registrar{Device: d, Access: Local}, gpudirect.Limits{Count: 4, Bytes: 1 << 20})
	for range 10 {
		r, err := c.Acquire(8*page+1, page, gpudirect.Pinned)
		require.NoError(t, err)
		require.EqualValues(t, 8*page, r.Token.(*Region).Address(0))
		again, err := c.Acquire(9*page, 10, gpudirect.Pinned)
		require.NoError(t, err)
		require.Same(t, r, again)
		require.NoError(t, c.Release(again))
		require.NoError(t, c.Release(r))
	}
	require.EqualValues(t, 10, d.Registrations())
	require.NoError(t, d.Close(), "none is left")
}

// TestLockedMemory: the limit on locked memory is named.
func TestLockedMemory(t *testing.T) {
	t.Setenv("FAKE_MEMLOCK", "8192")
	d := standIn(t)
	c := gpudirect.NewCache(Registrar{Device: d}, gpudirect.Limits{})
	r, err := c.Acquire(16*page, 2*page, gpudirect.Host)
	require.NoError(t, err)
	require.NoError(t, c.Release(r))
	_, err = c.Acquire(page, 3*page, gpudirect.Host)
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "device fake0: 12288 bytes cannot be registered, which locks them in memory")
	require.ErrorContains(t, err, "ulimit -l")
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestDeviceMemory: memory of a GPU and managed memory are refused.
func TestDeviceMemory(t *testing.T) {
	d := standIn(t)
	c := gpudirect.NewCache(Registrar{Device: d}, gpudirect.Limits{})
	for _, kind := range []gpudirect.Kind{gpudirect.Managed, gpudirect.CUDA} {
		_, err := c.Acquire(page, page, kind)
		require.ErrorIs(t, err, gpudirect.ErrUnsupported)
		require.ErrorContains(t, err, kind.String()+" memory cannot be registered with device fake0")
	}
	require.NoError(t, d.Close())
}

// TestOldLibrary: what a library is too old for is named, with the version that has it.
func TestOldLibrary(t *testing.T) {
	standIn(t, "-DOLD")
	require.ErrorContains(t, SurvivesFork(), "older than rdma-core 37")

	standIn(t)
	require.NoError(t, SurvivesFork())
	t.Setenv("FAKE_FORK_UNSAFE", "1")
	require.ErrorContains(t, SurvivesFork(), "Linux 5.12")
}
