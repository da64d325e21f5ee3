package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// failures is a sink that counts reads that have ended badly.
type failures struct {
	fabric.Sink
	failed int
}

func (s *failures) ReadEnded(_ *wire.Read, well bool) {
	if !well {
		s.failed++
	}
}

// TestIntroductionsThatLeadNowhere: one of a stranger, one that no queue pair can follow and one that comes again end
// nothing; who cannot read is pushed to.
func TestIntroductionsThatLeadNowhere(t *testing.T) {
	g := &Gather{
		sources: make([]netip.Addr, 3), pulls: pulls{left: 0, right: 2, reader: &ibverbs.Connection{}, readable: true},
	}
	require.NoError(t, g.Begin("verbs", &udp.Options{Rank: 1, Size: 3}, nil))
	defer g.End()
	for i := range g.sources {
		g.sources[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	h := &introductionSink{g: g}
	for from, i := range map[int]wire.Introduction{
		1: {Source: true, Number: 7, MTU: 1024},
		2: {Number: 7, MTU: 1000}, // there is no end for it
		0: {Source: true, Number: 9, MTU: 1024},
	} {
		m := i.Control()
		h.Control(from, &m)
		require.False(t, g.Failed(), "rank %d", from)
	}
	require.EqualValues(t, 3, g.Edges.Stats().Dropped)
}

// TestReadsWithoutADevice: a read that begins before this rank can read ends badly, and the core then has the chunks
// pushed.
func TestReadsWithoutADevice(t *testing.T) {
	var p pulls
	s := &failures{}
	r := wire.Read{Count: 2, Bytes: 8}
	for range reads {
		require.True(t, p.begin(&r))
	}
	require.False(t, p.begin(&r), "there is room for so many")
	require.False(t, p.arm(), "there is something to take")
	require.Equal(t, 2*reads, p.take(s, nil))
	require.Equal(t, reads, s.failed)
	require.False(t, p.underWay())
	require.True(t, p.arm())
}
