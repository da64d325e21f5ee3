package sys

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestWaitInASandbox must wait, and not return at once again and again, with any error
// that a sandbox returns from a call that it does not know.
func TestWaitInASandbox(t *testing.T) {
	for _, e := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES} {
		p := newPoller(t)
		p.idle = true // Sleep without yielding first.
		systest.InSandbox(t, e, []uint32{unix.SYS_EPOLL_PWAIT2}, func() {
			for range 10 {
				p.Wait(2 * time.Millisecond)
			}
		})
		require.True(t, p.coarse, "%v", e)
		require.EqualValues(t, 10, p.Syscalls.Load())
	}
}

func TestBatchesInASandbox(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.True(t, HasBatches(fd))
	for _, e := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		for _, call := range []uint32{unix.SYS_SENDMMSG, unix.SYS_RECVMMSG} {
			has := true
			systest.InSandbox(t, e, []uint32{call}, func() { has = HasBatches(fd) })
			require.False(t, has, "%v", e)
		}
	}
}
