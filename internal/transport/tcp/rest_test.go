package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func called(t *testing.T, c <-chan struct{}) {
	t.Helper()
	systest.Receive(t, c, "nobody called")
}

func TestRest(t *testing.T) {
	ranks := group(t, 2)
	awake := make(chan struct{}, 10)
	rest := func() bool { return ranks[0].Rest(func() { awake <- struct{}{} }) }
	require.True(t, rest())
	require.Equal(t, 3, ranks[1].Send(0, []byte("abc")))
	called(t, awake)
	ranks[0].Rouse()
	require.True(t, rest(), "what nobody asks for waits where it is")
	require.Empty(t, awake)
	ranks[0].Rouse()
	require.Equal(t, []byte("abc"), ranks[0].Peek(1, 10))

	chunk, sent := make([]byte, 1<<20), 0
	until(t, func() bool { return !ranks[0].streams[1].writable }, func() { sent += ranks[0].Send(1, chunk) })
	require.False(t, rest(), "what is not acknowledged may stall")
	ranks[0].Rouse()
	until(t, func() bool { return sent == 0 }, func() {
		n := len(ranks[1].Peek(0, 1<<20))
		ranks[1].Consume(0, n)
		sent -= n
	})
	until(t, rest, func() { systest.Pause(time.Millisecond) })
	ranks[0].Rouse()

	for len(awake) > 0 {
		<-awake
	}
	until(t, rest, func() {})
	require.NoError(t, ranks[1].Close())
	called(t, awake)
	ranks[0].Rouse()
	until(t, func() bool { return ranks[0].Err(1) != nil }, func() { ranks[0].Peek(1, 1<<20) })
}

// TestWatch: what comes, before or after, ends the sleep of something else.
func TestWatch(t *testing.T) {
	ranks := group(t, 2)
	awake := make(chan struct{}, 10)
	watch := func() { require.Equal(t, time.Hour, ranks[0].Watch(time.Hour, func() { awake <- struct{}{} })) }
	rest := func() {
		ranks[0].Unwatch()
		ranks[0].Sleep(0)
	}
	watch()
	require.Equal(t, 3, ranks[1].Send(0, []byte("abc")))
	called(t, awake)
	rest()
	require.Equal(t, []byte("abc"), ranks[0].Peek(1, 10))
	ranks[0].Consume(1, 3)

	require.Equal(t, 2, ranks[1].Send(0, []byte("de")))
	watch()
	called(t, awake)
	rest()
	require.Equal(t, []byte("de"), ranks[0].Peek(1, 10))
	ranks[0].Consume(1, 2)

	require.Equal(t, 1, ranks[1].Send(0, []byte("f")))
	until(t, func() bool { return len(ranks[0].Peek(1, 10)) > 0 }, func() {}) // a look between sleeps has found it
	if ranks[0].news {
		require.Zero(t, ranks[0].Watch(time.Hour, func() { t.Error("called though there is news") }))
	}
	watch()
	rest()

	watch()
	require.NoError(t, ranks[1].Close())
	called(t, awake)
	rest()
	until(t, func() bool { return ranks[0].Err(1) != nil }, func() { ranks[0].Peek(1, 1<<20) })
}
