package sys

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// restingOn returns a poller that watches a pipe, and what writes to it.
func restingOn(t *testing.T) (p *Poller, write func()) {
	t.Helper()
	p = newPoller(t)
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	t.Cleanup(func() { require.NoError(t, unix.Close(fds[0])); require.NoError(t, unix.Close(fds[1])) })
	require.NoError(t, p.Watch(fds[0], 7, unix.EPOLLIN))
	p.Ready()
	return p, func() {
		_, err := unix.Write(fds[1], []byte("x"))
		require.NoError(t, err)
	}
}

func called(t *testing.T, c <-chan struct{}) {
	t.Helper()
	systest.Receive(t, c, "nobody called")
}

func TestRestIsCalledOnce(t *testing.T) {
	p, write := restingOn(t)
	calls := make(chan struct{}, 10)
	awake := func() { calls <- struct{}{} }
	require.True(t, p.Rest(awake))
	write()
	called(t, calls)
	write()
	other, writeOther := restingOn(t) // its call comes after any that the second byte might bring
	for range 3 {
		heard := make(chan struct{}, 1)
		require.True(t, other.Rest(func() { heard <- struct{}{} }))
		writeOther()
		called(t, heard)
		other.Rouse()
	}
	require.Empty(t, calls)
	require.Len(t, p.Ready(), 1)
	require.True(t, p.Rest(awake), "what is there already counts")
	called(t, calls)
	p.Rouse()
}

func TestRouseCallsRestOff(t *testing.T) {
	p, write := restingOn(t)
	p.Rouse() // nothing to call off
	require.True(t, p.Rest(func() { t.Error("called though roused") }))
	p.Rouse()
	write()
	other, writeOther := restingOn(t)
	heard := make(chan struct{}, 1)
	require.True(t, other.Rest(func() { heard <- struct{}{} }))
	writeOther()
	called(t, heard)
	require.Len(t, p.Wait(time.Hour), 1, "and Wait is as before")
}

// TestLastPollerEndsTheWatch: nothing is left open, and the next one begins another.
func TestLastPollerEndsTheWatch(t *testing.T) {
	for range 20 {
		first, write := restingOn(t)
		second, _ := restingOn(t)
		heard := make(chan struct{}, 1)
		require.True(t, first.Rest(func() { heard <- struct{}{} }))
		require.True(t, second.Rest(func() {}))
		w := first.watch
		require.Same(t, w, second.watch)
		require.NoError(t, second.Close())
		write()
		called(t, heard)
		require.NoError(t, first.Close())
		require.Empty(t, w.resting)
		require.Nil(t, process.watch)
	}
}
