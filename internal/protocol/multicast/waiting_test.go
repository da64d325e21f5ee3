package multicast

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const notBegun = "it has not begun there, or waits there for another rank"

// waits returns what a rank says that its oldest operation waits for.
func (n *net) waits(t *testing.T, rank int) string {
	w, ok := n.comms[rank].Waiting()
	require.True(t, ok)
	return fmt.Sprintf("%s: ranks %v: %s", w.Called(), w.Ranks, w.Why())
}

func TestWaitingNamesWhoIsAwaited(t *testing.T) {
	cfg := plain(4, 4)
	cfg.Window = 4
	n := newNet(cfg)
	_, ok := n.comms[0].Waiting()
	require.False(t, ok, "nothing is in flight")
	o := Op{Collective: wire.Allgather, Bytes: 40}
	n.now = time.Second
	require.NoError(t, n.post(o, 0, 1, 3))
	n.run()
	require.Equal(t, "allgather of 40 bytes, number 0: ranks [2]: "+notBegun, n.waits(t, 0))
	require.Equal(t, "allgather of 40 bytes, number 0: ranks [3]: "+notBegun, n.waits(t, 1), "which waits for rank 2")
	w, _ := n.comms[0].Waiting()
	require.Equal(t, time.Second, w.Moved)
	require.Equal(t, 30, w.Missing)

	n.now = 2 * time.Second
	n.lose = func(packet) bool { return true }
	require.NoError(t, n.post(o, 2))
	n.run()
	require.Equal(t, "allgather of 40 bytes, number 0: ranks [1 2]: no room to send", n.waits(t, 0))
	require.Equal(t, "allgather of 40 bytes, number 0: ranks [0]: 30 chunk(s) have not come", n.waits(t, 2))
	w, _ = n.comms[2].Waiting()
	require.Equal(t, 2*time.Second, w.Moved)
	n.tick(5 * time.Second)
	require.True(t, n.done())
}

func TestWaitingForTurnAndHandshake(t *testing.T) {
	n := newNet(plain(2, 4))
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 4}, 0, 1))
	turn, data := packet{}, packet{}
	for len(n.way) > 0 {
		p := n.way[0]
		n.way = n.way[1:]
		switch {
		case p.message != nil && p.message.Kind == wire.Activate:
			turn = p
		case p.data != nil && p.to == 1 && data.data == nil:
			data = p
		default:
			n.deliver(p)
		}
	}
	n.deliver(data)
	require.Equal(t, "allgather of 4 bytes, number 0: ranks [0]: the turn to send has not come", n.waits(t, 1))
	n.deliver(turn)
	for len(n.way) > 0 { // rank 1's word that it has everything is late
		p := n.way[0]
		n.way = n.way[1:]
		if p.message != nil && p.message.Kind == wire.Done && p.to == 0 {
			continue
		}
		n.deliver(p)
	}
	require.Equal(t, "allgather of 4 bytes, number 0: ranks [1]: the final handshake has not come", n.waits(t, 0))
}

func TestWaitingOfSmallOperations(t *testing.T) {
	n := newNet(small(3, 1024))
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 4}, 0, 2))
	n.run()
	require.Equal(t, "allgather of 4 bytes, number 0: ranks [1]: 1 chunk(s) have not come", n.waits(t, 0))
}
