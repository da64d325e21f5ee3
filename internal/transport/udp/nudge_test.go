package udp

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestNudges has a peer that does not read, so that its kernel takes, and acknowledges, only some
// of the bytes.
func TestNudges(t *testing.T) {
	g, other := end(t)
	require.NoError(t, other.SetReadBuffer(4<<10))
	s := newSink(1, 2, g.chunk, 0)
	const repairs = 64
	for range repairs {
		require.True(t, g.Control(0, &wire.Control{Kind: wire.Repair, Bytes: uint64(g.chunk)}, make([]byte, g.chunk)))
	}
	g.Flush()
	size := repairs * (wire.ControlSize + g.chunk)
	require.EqualValues(t, size, g.Stats().ControlBytes, "this rank's kernel has it all")
	require.Len(t, g.tails, 1)
	pollUntil(t, g, s, func() bool { return len(g.tails) == 0 })
	require.EqualValues(t, size+maxNudges*wire.ControlSize, g.Stats().ControlBytes, "and then it is left alone")

	_, err := io.CopyN(io.Discard, other, int64(size))
	require.NoError(t, err)
	nudges := make([]byte, maxNudges*wire.ControlSize)
	_, err = io.ReadFull(other, nudges)
	require.NoError(t, err)
	for ; len(nudges) > 0; nudges = nudges[wire.ControlSize:] {
		var m wire.Control
		require.NoError(t, m.Get(nudges))
		require.Equal(t, wire.Control{Kind: wire.Nudge}, m)
	}
}

// TestNudgesMeanNothing nudges a rank between two messages.
func TestNudgesMeanNothing(t *testing.T) {
	g, other := end(t)
	s := newSink(1, 2, g.chunk, 0)
	first, second := wire.Control{Kind: wire.Ready, Seq: 1}, wire.Control{Kind: wire.Done, Seq: 2}
	for _, m := range []*wire.Control{&first, {Kind: wire.Nudge}, &second} {
		_, err := other.Write(encode(m))
		require.NoError(t, err)
	}
	pollUntil(t, g, s, func() bool { return len(s.heard) == 2 })
	require.Equal(t, []said{{0, first}, {0, second}}, s.heard)
	require.Empty(t, s.broken)
}
