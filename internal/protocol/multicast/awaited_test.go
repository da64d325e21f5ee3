package multicast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// awaitedBy returns what a rank has waited for from another one.
func (n *net) awaitedBy(rank, other int) Awaited { return n.comms[rank].Awaited()[other] }

// TestBarrierIsBookedOnWhoIsLate: each late rank is booked for the time since the arrival before, and the last rank
// waits for nobody.
func TestBarrierIsBookedOnWhoIsLate(t *testing.T) {
	n := newNet(plain(4, 4))
	o := Op{Collective: wire.Allgather, Bytes: 40}
	require.NoError(t, n.post(o, 0, 3))
	n.run()
	n.now = time.Second
	require.NoError(t, n.post(o, 1))
	n.run()
	n.now = 3 * time.Second
	require.NoError(t, n.post(o, 2))
	n.tick(time.Second)
	require.True(t, n.done())
	// Rank 0 hears of rank 3 first, then of rank 2, which is late itself.
	require.Equal(t, Awaited{Barrier: uint64(3 * time.Second)}, n.awaitedBy(0, 2))
	require.Equal(t, Awaited{}, n.awaitedBy(0, 1))
	require.Equal(t, Awaited{Barrier: uint64(time.Second)}, n.awaitedBy(3, 1))
	require.Equal(t, Awaited{Barrier: uint64(2 * time.Second)}, n.awaitedBy(3, 2))
	require.Equal(t, Awaited{Barrier: uint64(2 * time.Second)}, n.awaitedBy(1, 3), "which waited for rank 2 itself")
	for other := range 4 {
		require.Equal(t, Awaited{}, n.awaitedBy(2, other), "the last one waits for nobody")
	}
}

// TestQueuedIsBookedOnNobody: an operation behind another one waits for that, not for ranks.
func TestQueuedIsBookedOnNobody(t *testing.T) {
	n := newNet(small(2, 1024))
	o := Op{Collective: wire.Allgather, Bytes: 4}
	require.NoError(t, n.post(o, 0))
	require.NoError(t, n.post(o, 0))
	n.run()
	n.now = time.Second
	require.NoError(t, n.post(o, 1))
	n.run()
	n.now = 3 * time.Second
	require.NoError(t, n.post(o, 1))
	n.tick(time.Second)
	require.True(t, n.done())
	require.Equal(t, Awaited{Chunks: uint64(3 * time.Second)}, n.awaitedBy(0, 1), "not 1 s and 3 s")
}

// TestRepairIsBookedOnItsRoot, with the time that it took.
func TestRepairIsBookedOnItsRoot(t *testing.T) {
	n := newNet(plain(3, 4))
	n.lose = func(p packet) bool { return p.from == 1 && p.to == 2 && p.data.PSN == 9 }
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 40}, n.all()...))
	n.tick(time.Second)
	require.True(t, n.done())
	a := n.awaitedBy(2, 1)
	require.EqualValues(t, 1, a.Asked)
	require.Positive(t, a.Chunks)
	require.Zero(t, n.awaitedBy(2, 0).Asked)
	require.Positive(t, n.awaitedBy(1, 2).Handshake, "rank 1 may not end before rank 2 has everything")
	require.Zero(t, n.awaitedBy(0, 1).Handshake)
}

// TestCreditIsBookedOnWhoGivesIt late.
func TestCreditIsBookedOnWhoGivesIt(t *testing.T) {
	cfg := plain(3, 4)
	cfg.Window = 4
	n := newNet(cfg)
	var held []packet
	require.NoError(t, n.post(Op{Collective: wire.Broadcast, Root: 0, Bytes: 80}, n.all()...))
	for len(n.way) > 0 {
		p := n.way[0]
		n.way = n.way[1:]
		if p.to == 2 && p.data != nil { // it does not take chunks off its queue
			held = append(held, p)
			continue
		}
		n.deliver(p)
	}
	n.now = time.Second
	for _, p := range held {
		n.deliver(p)
	}
	n.tick(time.Second)
	require.True(t, n.done())
	require.Equal(t, uint64(time.Second), n.awaitedBy(0, 2).Credit)
	require.Zero(t, n.awaitedBy(0, 1).Credit)
}
