package shm

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func serve(t *testing.T, size int) *Server {
	srv, err := Serve(t.Context(), testJob, testKey, small(size))
	require.NoError(t, err)
	t.Cleanup(srv.Close)
	return srv
}

// attach is what a rank does.
func attach(ctx context.Context, address string, job, key uint64, rank, size int) (*Region, error) {
	c, err := Dial(ctx, address, job, key, rank, size)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Attach(ctx)
}

func TestStrangersGetNothing(t *testing.T) {
	srv := serve(t, 2)
	silent, err := net.Dial("unix", srv.Address()) // keeps nobody waiting
	require.NoError(t, err)
	defer silent.Close()
	for _, c := range []struct {
		name       string
		job, key   uint64
		rank, size int
		want       string
	}{
		{"wrong key", testJob, testKey + 1, 0, 2, "refused by the region's server"},
		{"wrong job", testJob + 1, testKey, 0, 2, "refused by the region's server"},
		{"rank too large", testJob, testKey, 2, 3, "refused by the region's server"},
		{"impossible rank", testJob, testKey, 2, 2, "shm: rank 2, allowed are 0 to 1"},
		{"impossible size", testJob, testKey, 2, 257, "shm: ranks of a host: 257, allowed are 1 to 256"},
	} {
		_, err := attach(t.Context(), srv.Address(), c.job, c.key, c.rank, c.size)
		assert.ErrorContains(t, err, c.want, c.name)
	}
	for _, garbage := range []string{"x", "GET / HTTP/1.1\r\n\r\n", string(make([]byte, 100))} {
		c, err := net.Dial("unix", srv.Address())
		require.NoError(t, err)
		_, err = c.Write([]byte(garbage))
		require.NoError(t, err)
		n, _ := c.Read(make([]byte, 10))
		assert.Zero(t, n, "an answer to %q", garbage)
		require.NoError(t, c.Close())
	}
	// None of that kept the ranks from their region.
	for r := range 2 {
		w, err := attach(t.Context(), srv.Address(), testJob, testKey, r, 2)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		if r == 0 {
			_, err = attach(t.Context(), srv.Address(), testJob, testKey, r, 2)
			assert.ErrorContains(t, err, "refused by the region's server", "the same rank twice")
		}
	}
}

func TestServerStopsWhenAllHaveTheWindow(t *testing.T) {
	srv := serve(t, 1)
	w, err := attach(t.Context(), srv.Address(), testJob, testKey, 0, 1)
	require.NoError(t, err)
	<-srv.done
	assert.Equal(t, -1, srv.fd, "its descriptor is closed")
	_, err = attach(t.Context(), srv.Address(), testJob, testKey, 0, 1)
	assert.ErrorIs(t, err, fabric.ErrUnavailable)
	require.NoError(t, w.Close())
}

func TestServerStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv, err := Serve(ctx, testJob, testKey, small(2))
	require.NoError(t, err)
	cancel()
	<-srv.done
	_, err = attach(t.Context(), srv.Address(), testJob, testKey, 0, 2)
	assert.ErrorIs(t, err, fabric.ErrUnavailable)
}

// TestAttachHonoursItsContext connects to a listener that never answers.
func TestAttachHonoursItsContext(t *testing.T) {
	ln, err := net.Listen("unix", "@torch-mcast-test-mute-"+t.Name()+time.Now().String())
	require.NoError(t, err)
	defer ln.Close()
	_, err = attach(systest.Ending(t, 50*time.Millisecond), ln.Addr().String(), testJob, testKey, 0, 2)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "shared memory of job 0x1122334455667788")
}

// TestOtherUsersGetNothing gives one thread another user's identity, for good:
// the thread ends with its goroutine, because it stays locked.
func TestOtherUsersGetNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	srv := serve(t, 2)
	type answer struct {
		attach error
		bytes  int
		err    error
	}
	got := make(chan answer)
	go func() {
		runtime.LockOSThread()
		var a answer
		defer func() { got <- a }()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			a.err = e
			return
		}
		_, a.attach = attach(context.Background(), srv.Address(), testJob, testKey, 0, 2)
		c, err := net.Dial("unix", srv.Address())
		if err != nil {
			a.err = err
			return
		}
		hello := wire.Hello{Purpose: wire.PurposeControl, Job: testJob, Key: testKey}
		buf := make([]byte, wire.HelloSize)
		hello.Put(buf)
		_, _ = c.Write(buf) // perhaps into a connection that is closed already
		a.bytes, _ = c.Read(buf)
		a.err = c.Close()
	}()
	a := <-got
	require.NoError(t, a.err)
	assert.ErrorContains(t, a.attach, "the peer runs as user 0, this rank as 65534")
	assert.Zero(t, a.bytes)
	assert.False(t, srv.attached[0])
}
