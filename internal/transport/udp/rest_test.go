package udp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// rests polls until nothing keeps a rank from resting, and has it do so.
func rests(t *testing.T, g *Gather, s *sink) (awake chan struct{}) {
	t.Helper()
	awake = make(chan struct{}, 10)
	pollUntil(t, g, s, func() bool {
		if g.Rest(func() { awake <- struct{}{} }) {
			return true
		}
		g.Rouse()
		return false
	})
	return awake
}

func called(t *testing.T, c <-chan struct{}) {
	t.Helper()
	systest.Receive(t, c, "nobody called")
}

// TestRestEndsWithWhatArrives: a message, a chunk, and the end of a connection.
func TestRestEndsWithWhatArrives(t *testing.T) {
	ranks, _ := group(t, 2, nil)
	shard := make([]byte, 100)
	s := newSink(0, 2, ranks[0].chunk, len(shard))
	awake := rests(t, ranks[0], s)
	require.True(t, ranks[1].Control(0, &wire.Control{Kind: wire.Ready, Seq: 1}, nil))
	ranks[1].Flush()
	called(t, awake)
	ranks[0].Rouse()
	pollUntil(t, ranks[0], s, func() bool { return len(s.heard) == 1 })

	awake = rests(t, ranks[0], s)
	fill(shard, 1, 1)
	require.Equal(t, 1, ranks[1].Multicast(run(1, 1, shard, 0, 1)))
	called(t, awake)
	ranks[0].Rouse()
	pollUntil(t, ranks[0], s, func() bool { return s.left == 0 })
	require.NoError(t, s.check())

	awake = rests(t, ranks[0], s)
	require.NoError(t, ranks[1].Close())
	called(t, awake)
	ranks[0].Rouse()
	pollUntil(t, ranks[0], s, func() bool { return s.broken[1] != nil })
}

// TestNoRestWhileSomethingIsDue: what a peer does not acknowledge may have to be said again, or stalls.
func TestNoRestWhileSomethingIsDue(t *testing.T) {
	g, other := end(t)
	require.NoError(t, other.SetReadBuffer(4<<10))
	s := newSink(1, 2, g.chunk, 0)
	const repairs = 64
	for range repairs {
		require.True(t, g.Control(0, &wire.Control{Kind: wire.Repair, Bytes: uint64(g.chunk)}, make([]byte, g.chunk)))
	}
	require.False(t, g.Rest(func() {}), "messages are not sent yet")
	g.Flush()
	require.False(t, g.Rest(func() {}), "nudges are due")
	pollUntil(t, g, s, func() bool { return len(g.tails) == 0 })
	require.False(t, g.Rest(func() {}), "the peer's kernel has not all of it")
}
