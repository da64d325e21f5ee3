package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestBacklog has a socket on a device that sends so many bytes a second.
func TestBacklog(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	asked := func() int { // the kernel doubles the value it is given
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		require.NoError(t, err)
		return n / 2
	}
	first := asked()
	now := time.Unix(1, 0)
	var b backlog
	run := func(rate float64, took time.Duration, times int) {
		t.Helper()
		for range times {
			b.sent(int(rate * took.Seconds()))
			now = now.Add(took)
			require.NoError(t, b.full(fd, now))
		}
	}
	run(1e9, time.Second, 1)
	require.Equal(t, first, asked(), "nothing is known yet")
	run(50e6, 20*time.Millisecond, 1)
	require.Equal(t, 128<<10, asked(), "2 ms of 50 MB/s, rounded up")
	run(1e9, time.Millisecond, 19)
	require.Equal(t, 128<<10, asked(), "what a link lets pass in a burst is no rate")
	run(25e6, 30*time.Millisecond, 1)
	run(25e6, 30*time.Millisecond, 30)
	require.Equal(t, leastBacklog, asked(), "a lower rate is believed by and by")
}
