package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func dial(t *testing.T, srv *Server) *Client {
	t.Helper()
	c, err := Dial(t.Context(), srv.Address(), testJob, testKey, 0, 2)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestNoDescriptorForTheRegion: who has none left when the answer comes is told so, and can
// attach later, though the server does not answer twice.
func TestNoDescriptorForTheRegion(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	srv := serve(t, 2)
	c := dial(t, srv)
	systest.Eventually(t, func() bool { // the server, in this process, needs descriptors too
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.attached[0]
	})
	for range 2 {
		var err error
		systest.WithDescriptors(t, 0, func() { _, err = c.Attach(t.Context()) })
		require.ErrorIs(t, err, unix.EMFILE)
		require.ErrorContains(t, err, "shared memory of job 0x1122334455667788: shm: no descriptor is left for the region")
	}
	before := systest.Descriptors(t)
	w, err := c.Attach(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, systest.Descriptors(t))
	require.NoError(t, w.Close())
}

// TestRegionIsWithheld: there are descriptors, but the kernel does not hand over the region's, here
// for want of room (the server's credentials come first), else because a security module forbids it.
func TestRegionIsWithheld(t *testing.T) {
	c := dial(t, serve(t, 2))
	raw, err := c.conn.SyscallConn()
	require.NoError(t, err)
	require.NoError(t,
		raw.Control(func(s uintptr) { err = unix.SetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }))
	require.NoError(t, err)
	_, err = c.Attach(t.Context())
	require.ErrorIs(t, err, errWithheld)
}
