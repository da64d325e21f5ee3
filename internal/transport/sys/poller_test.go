package sys

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestWaitReportsWhatIsWatched(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		p := newPoller(t)
		p.coarse = coarse
		var fds [2]int
		require.NoError(t, unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
		defer func() { require.NoError(t, unix.Close(fds[0])); require.NoError(t, unix.Close(fds[1])) }()
		require.NoError(t, p.Watch(fds[0], 7, unix.EPOLLIN))
		require.Empty(t, p.Ready())
		require.Empty(t, p.Wait(time.Microsecond))
		_, err := unix.Write(fds[1], []byte("x"))
		require.NoError(t, err)
		for _, ready := range [][]unix.EpollEvent{p.Ready(), p.Wait(time.Hour), p.block(time.Hour)} {
			require.Len(t, ready, 1)
			require.EqualValues(t, 7, ready[0].Fd)
		}
		require.NoError(t, p.Change(fds[0], 7, 0))
		require.Empty(t, p.Ready())
	}
}

func TestWakeEndsOneWait(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		p := newPoller(t)
		p.coarse = coarse
		for range 3 {
			p.Wake()
			p.Wake()
			require.Empty(t, p.Wait(time.Hour), "woken before")
		}
		for range 20 {
			asleep := make(chan struct{})
			go func() {
				<-asleep
				p.Wake()
			}()
			close(asleep)
			require.Empty(t, p.Wait(time.Hour), "woken before or after")
		}
		for range 4 {
			p.Wait(5 * time.Millisecond) // A late Wake may end one; all end by themselves.
		}
	}
}

// TestUnwatch has the file of a descriptor live on, as in a forked child, after it is closed here.
func TestUnwatch(t *testing.T) {
	p := newPoller(t)
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	child, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(child)) }()
	require.NoError(t, p.Watch(fds[0], 7, unix.EPOLLIN))
	require.NoError(t, unix.Close(fds[1]))
	require.Len(t, p.Ready(), 1, "the end of the pipe")
	require.NoError(t, p.Unwatch(fds[0]))
	require.NoError(t, unix.Close(fds[0]))
	require.Empty(t, p.Ready())
}

func TestWatchRefusesBadDescriptor(t *testing.T) {
	require.ErrorIs(t, newPoller(t).Watch(-1, 0, unix.EPOLLIN), unix.EBADF)
}

// TestWakeAfterClose must not write to the descriptor, which may belong to something else by then.
func TestWakeAfterClose(t *testing.T) {
	p, err := NewPoller()
	require.NoError(t, err)
	require.NoError(t, p.Close())
	p.Wake()
}

func TestMap(t *testing.T) {
	b, err := Map[[100000]byte]()
	require.NoError(t, err)
	require.Equal(t, [100000]byte{}, *b)
	b[99999] = 1
	require.NoError(t, Unmap(b))
	require.NoError(t, Unmap[int](nil))
}
