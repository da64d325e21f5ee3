package batch

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestRefusedWithoutSegmentation: ten datagrams of one length are one message until the kernel refuses
// segmentation; then they are ten, of which it refuses the first.
func TestRefusedWithoutSegmentation(t *testing.T) {
	for second, want := range map[syscall.Errno]int{unix.EPERM: 1, unix.EINVAL: 1} {
		out, err := NewOutbox(head, new(atomic.Uint64))
		require.NoError(t, err)
		fd, err := Open(unix.AF_INET)
		require.NoError(t, err)
		for range 10 {
			require.NotNil(t, out.Add(make([]byte, 100)))
		}
		s := &Sender{FD: fd, Use: all, Headers: 28}
		var sent, refused int
		var e syscall.Errno
		denied := []systest.Denial{{Call: unix.SYS_SENDMSG, Errno: unix.EINVAL}, {Call: unix.SYS_SENDMMSG, Errno: second}}
		systest.InSandboxWith(t, denied, func() { sent, refused, e = out.Send(s, 0) })
		require.Zero(t, sent)
		require.Equal(t, second, e)
		require.Equal(t, want, refused)
		require.True(t, s.Use.Segment)
		require.NoError(t, unix.Close(fd))
		require.NoError(t, out.Close())
	}
}
