package udp

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/record/recordtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// end replaces the connection from rank 1 to rank 0 and returns rank 0's end
// as an ordinary connection, so that a test can say anything over it.
func end(t *testing.T) (*Gather, *net.TCPConn) {
	t.Helper()
	var other *net.TCPConn
	ranks, _ := group(t, 2, func(o *Options) {
		if o.Rank == 1 {
			require.NoError(t, o.Conns[0].Close())
			o.Conns[0], other = systest.Pair(t)
		}
		o.Chunk = 1024
	})
	return ranks[1], other
}

func encode(m *wire.Control) []byte {
	b := make([]byte, wire.ControlSize)
	m.Put(b)
	return b
}

func TestControlArrivesInOrder(t *testing.T) {
	t.Run("as it is", func(t *testing.T) { controlArrivesInOrder(t, nil) })
	t.Run("protected", func(t *testing.T) {
		controlArrivesInOrder(t, func(o *Options) { recordtest.Protect(t, o.Rank, o.Conns) })
	})
}

func controlArrivesInOrder(t *testing.T, adjust func(o *Options)) {
	ranks, _ := group(t, 2, adjust)
	s := newSink(1, 2, ranks[1].Traits().Chunk, 0)
	var want []said
	for i := range 5000 {
		m := wire.Control{
			Kind: []wire.Kind{wire.Ready, wire.Activate, wire.Credit, wire.Fetch, wire.Done}[i%5], Collective: wire.Allgather,
			Round: uint8(i), Root: uint16(i % 2), Seq: uint32(i), PSN: uint32(2 * i), Count: uint32(3 * i),
			Bytes: uint64(i) << 20,
		}
		want = append(want, said{0, m})
		require.True(t, ranks[0].Control(1, &m, nil))
	}
	ranks[0].Flush()
	for deadline := systest.Deadline(); len(s.heard) < len(want); {
		require.True(t, time.Now().Before(deadline))
		require.LessOrEqual(t, polled(ranks[1], s, 7), 7, "the budget holds")
		ranks[1].Sleep(time.Millisecond)
	}
	require.Equal(t, want, s.heard)
	require.EqualValues(t, 5000*wire.ControlSize, ranks[0].Stats().ControlBytes)
}

// TestMessagesDoNotWaitForChunks: what a budget has left over comes first the next time, though there are chunks for
// many more.
func TestMessagesDoNotWaitForChunks(t *testing.T) {
	const chunks, budget = 60, 10
	ranks, _ := group(t, 2, func(o *Options) { o.Chunk, o.Offload = 1440, batch.OffloadSingle })
	s := newSink(1, 2, 1440, chunks*1440)
	require.Equal(t, chunks, ranks[0].Multicast(run(0, 1, make([]byte, s.shard), 0, chunks)))
	require.True(t, ranks[0].Control(1, &wire.Control{Kind: wire.Ready}, nil))
	ranks[0].Flush()
	for _, fd := range []int{ranks[1].receivers[0].fd, ranks[1].peers[0].line.FD} {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(systest.Limit/time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	for range 2 {
		polled(ranks[1], s, budget)
	}
	require.Len(t, s.heard, 1)
	require.Equal(t, chunks-budget, s.left)
}

// TestRepairs sends more repairs than queues and sockets hold at once.
func TestRepairs(t *testing.T) {
	ranks, _ := group(t, 2, nil)
	chunk := ranks[0].Traits().Chunk
	shard := make([]byte, 200*chunk+77)
	fill(shard, 0, 1)
	s := newSink(1, 2, chunk, len(shard))
	refused := false
	for psn := 0; psn < s.chunks(); {
		payload := shard[psn*chunk : min((psn+1)*chunk, len(shard))]
		m := wire.Control{
			Kind: wire.Repair, Collective: wire.Allgather, Seq: 1, PSN: uint32(psn), Bytes: uint64(len(payload)),
		}
		if ranks[0].Control(1, &m, payload) {
			psn++
			continue
		}
		refused = true
		ranks[0].Flush()
		ranks[0].Poll(newSink(0, 2, chunk, 0), 10) // Room shows up as an event.
		ranks[1].Poll(s, 3)
	}
	require.True(t, refused, "the queue is bounded")
	require.LessOrEqual(t, cap(ranks[0].byRank[1].out), outLimit)
	zero := newSink(0, 2, chunk, 0)
	pollUntil(t, ranks[1], s, func() bool {
		ranks[0].Flush()
		ranks[0].Poll(zero, 10)
		return s.left == 0
	})
	require.NoError(t, s.check())
	require.Empty(t, s.broken)
	// A repair of a chunk that is there already has no effect.
	m := wire.Control{Kind: wire.Repair, Collective: wire.Allgather, Seq: 1, Bytes: uint64(chunk)}
	require.True(t, ranks[0].Control(1, &m, make([]byte, chunk)))
	ranks[0].Flush()
	pollUntil(t, ranks[1], s, func() bool { return ranks[1].Stats().Dropped == 1 })
	require.NoError(t, s.check())
}

// TestRepairInPieces has a repair trickle in.
func TestRepairInPieces(t *testing.T) {
	g, conn := end(t)
	s := newSink(1, 2, 1024, 1000)
	payload := make([]byte, 1000)
	fill(payload, 0, 1)
	message := append(encode(&wire.Control{Kind: wire.Repair, Collective: wire.Allgather, Seq: 1, Bytes: 1000}),
		payload...)
	for at := 0; at < len(message); at += 100 {
		require.Equal(t, 1, s.left)
		_, err := conn.Write(message[at:min(at+100, len(message))])
		require.NoError(t, err)
		g.Sleep(systest.Limit)
		require.Equal(t, at+100 >= len(message), polled(g, s, 10) == 1)
	}
	require.Zero(t, s.left)
	require.NoError(t, s.check())
}

func TestBrokenNamesRankAndCause(t *testing.T) {
	whole := encode(&wire.Control{Kind: wire.Done, Collective: wire.Allgather})
	for name, c := range map[string]struct {
		say   []byte
		cause error
		text  string
	}{
		"closed":         {nil, io.EOF, "closed its control connection"},
		"cut in message": {whole[:10], io.ErrUnexpectedEOF, "closed its control connection"},
		"garbage":        {make([]byte, wire.ControlSize), wire.ErrVersion, "00 00 00"},
		"unknown kind":   {append([]byte{99}, whole[1:]...), wire.ErrField, fmt.Sprintf("63 %x3 00", wire.Version)},
		"huge repair": {encode(&wire.Control{Kind: wire.Repair, Collective: wire.Allgather, Bytes: 1 << 30}),
			wire.ErrField, ""},
		"large repair": {encode(&wire.Control{Kind: wire.Repair, Collective: wire.Allgather, Bytes: 2048}), nil,
			"with 2048 bytes of payload: want a root that there is, and at most 1024 bytes"},
		"no such root": {encode(&wire.Control{Kind: wire.Credit, Collective: wire.Allgather, Root: 2}), nil, "root 2"},
	} {
		t.Run(name, func(t *testing.T) {
			g, conn := end(t)
			s := newSink(1, 2, 1024, 0)
			_, err := conn.Write(append(append([]byte{}, whole...), c.say...))
			require.NoError(t, err)
			if len(c.say) < wire.ControlSize {
				require.NoError(t, conn.Close())
			} else {
				t.Cleanup(func() { _ = conn.Close() })
			}
			pollUntil(t, g, s, func() bool { return len(s.broken) > 0 })
			require.Len(t, s.heard, 1, "what came before is delivered")
			require.ErrorContains(t, s.broken[0], c.text)
			if c.cause != nil {
				require.ErrorIs(t, s.broken[0], c.cause)
			}
			// The rest goes on, and messages to the lost rank go nowhere.
			require.True(t, g.Control(0, &wire.Control{Kind: wire.Done}, nil))
			g.Flush()
			clear(s.broken)
			require.Zero(t, polled(g, s, 10))
			require.Empty(t, s.broken, "told once")
		})
	}
}

// TestSendingToTheDead loses the connection with messages queued.
func TestSendingToTheDead(t *testing.T) {
	g, conn := end(t)
	require.NoError(t, conn.SetLinger(0))
	require.NoError(t, conn.Close())
	s := newSink(1, 2, 1024, 0)
	pollUntil(t, g, s, func() bool {
		require.True(t, g.Control(0, &wire.Control{Kind: wire.Done, Collective: wire.Allgather}, nil))
		g.Flush()
		return len(s.broken) > 0
	})
	require.Error(t, s.broken[0])
}

// TestLostConnectionIsQuiet has a forked child hold the connection as well: it must not wake
// this rank again and again after it is given up.
func TestLostConnectionIsQuiet(t *testing.T) {
	g, conn := end(t)
	child, err := unix.FcntlInt(uintptr(g.peers[0].line.FD), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(child)) }()
	require.NoError(t, conn.Close())
	s := newSink(1, 2, 1024, 0)
	pollUntil(t, g, s, func() bool { return len(s.broken) > 0 })
	require.Empty(t, g.poller.Ready())
}

func TestControlToNoNeighbourIsToldOf(t *testing.T) {
	ranks, _ := group(t, 1, nil)
	require.True(t, ranks[0].Control(7, &wire.Control{Kind: wire.Done}, nil), "thrown away")
	s := newSink(0, 1, 1024, 0)
	ranks[0].Poll(s, 1)
	require.EqualError(t, s.broken[0], "udp: member 7: there is no control connection to it")
}

// A rank that is lost does not hold up the others: messages to it are thrown away, for ever.
func TestControlToALostRankIsThrownAway(t *testing.T) {
	ranks, _ := group(t, 2, nil)
	s := newSink(0, 2, 1024, 0)
	require.NoError(t, ranks[1].Close())
	pollUntil(t, ranks[0], s, func() bool { return s.broken[1] != nil })
	for range 2 * outLimit / wire.ControlSize {
		require.True(t, ranks[0].Control(1, &wire.Control{Kind: wire.Done}, nil))
	}
}
