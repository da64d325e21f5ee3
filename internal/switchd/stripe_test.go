package switchd

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// worked is a worker that nobody runs but the test.
func worked(t *testing.T) *worker {
	t.Helper()
	w, err := newWorker(session.Kernel{})
	require.NoError(t, err)
	t.Cleanup(func() {
		w.stop()
		w.run() // lets go of everything
	})
	return w
}

func open(t *testing.T, port uint16) *datagram.Socket {
	t.Helper()
	s, err := datagram.Open(datagram.Options{Local: netip.AddrFrom4([4]byte{127, 0, 0, 1}), First: port, Last: port})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func connect(t *testing.T, a, b *datagram.Socket) {
	t.Helper()
	require.NoError(t, a.Connect(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.Port())))
}

// adopted gives a worker a stripe of a job of its own and returns the members' sockets.
func adopted(t *testing.T, w *worker, members int) (*stripe, []*datagram.Socket) {
	t.Helper()
	j, ends := &job{}, make([]*datagram.Socket, members)
	c := innetwork.StageConfig{
		Terms: innetwork.Terms{Job: 1, Ranks: members, Stripes: 1, Chunk: 1024, Slots: 64, Queue: 64}, Members: members,
	}
	for r := range members {
		node := open(t, 0)
		ends[r] = open(t, 0)
		connect(t, node, ends[r])
		connect(t, ends[r], node)
		j.members = append(j.members, &member{peer: &session.Peer{}, ranks: []int{r}, sockets: []*datagram.Socket{node}})
		c.Owner = append(c.Owner, r)
	}
	c.Memory = make([]byte, innetwork.MemoryFor(&c))
	s, err := newStripe(j, c)
	require.NoError(t, err)
	w.adopt(s)
	return s, ends
}

// TestShares has one worker serve two jobs. The members of one job have sent as many short or large
// datagrams as their sockets hold. As long as the other has something left, it gets at least three
// quarters of its fair half.
func TestShares(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "a byte": 1, "like the other's": 1408, "large": 32 << 10} {
		t.Run(name, func(t *testing.T) {
			w := worked(t)
			hostile, attackers := adopted(t, w, 8)
			honest, members := adopted(t, w, 8)
			for sockets, length := range map[*[]*datagram.Socket]int{&attackers: size, &members: 1408} {
				for _, socket := range *sockets {
					for range 1000 { // the rest is dropped
						_, err := unix.Write(socket.FD(), make([]byte, length))
						require.NoError(t, err)
					}
				}
			}
			w.mark(w.poller.Ready())
			// charged is what a round of a stripe costs the worker: bytes, and about as much as 2
			// KiB a datagram.
			charged := func(s *stripe) (cost uint64) {
				before := w.moved
				w.serve(s)
				n := w.moved.Garbage - before.Garbage
				return max(w.moved.BytesIn-before.BytesIn, n*2048)
			}
			var mine, all uint64
			rounds := 0
			for ; rounds < 1000; rounds++ {
				theirs := charged(hostile)
				own := charged(honest)
				if own < node.Quantum/2 { // nothing is left
					break
				}
				mine, all = mine+own, all+own+theirs
				require.GreaterOrEqual(t, float64(mine), 0.75*float64(all)/2, "after %d rounds", rounds+1)
			}
			require.Greater(t, rounds, 2)
			require.Less(t, rounds, 1000)
		})
	}
}

// TestErrorBeforeData has the network refuse a datagram of the switch before its member sends one:
// the kernel reports that first, and does not call again for the queued datagram.
func TestErrorBeforeData(t *testing.T) {
	w := worked(t)
	s, ends := adopted(t, w, 1)
	port, node := ends[0].Port(), s.links[0].socket
	require.NoError(t, ends[0].Close())
	_, err := unix.Write(node.FD(), []byte("nobody is there"))
	require.NoError(t, err)
	again := open(t, port)
	connect(t, again, node)
	_, err = unix.Write(again.FD(), []byte("garbage"))
	require.NoError(t, err)
	w.mark(w.poller.Ready())
	require.True(t, w.serve(s))
	require.Equal(t, uint64(1), w.moved.Errors)
	require.Equal(t, uint64(1), w.moved.Garbage)
	require.False(t, w.serve(s))
}

// TestCongestion: a link that the kernel has no memory for is tried again after a pause, though no
// event comes; a link with a full socket is not.
func TestCongestion(t *testing.T) {
	for e, again := range map[unix.Errno]bool{unix.ENOBUFS: true, unix.ENOMEM: true, unix.EAGAIN: false} {
		w := worked(t)
		s, _ := adopted(t, w, 1)
		l := s.links[0]
		l.room = datagram.Free
		sent := -1
		systest.InSandbox(t, e, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() {
			l.Add(&wire.Slot{Kind: wire.Result, Job: 1}, nil)
			sent = l.Flush()
		})
		require.Zero(t, sent)
		w.retry()
		require.False(t, l.Writable(), "%v: no busy loop", e)
		pause := w.pause()
		require.Positive(t, pause)
		w.now += pause
		w.retry()
		require.Equal(t, again, l.Writable(), "%v", e)
		require.Equal(t, nap, w.pause(), "once")
	}
}
