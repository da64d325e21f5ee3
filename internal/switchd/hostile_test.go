package switchd

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd/switchtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// junk returns a datagram that looks more or less like one of a member's.
func junk(rng *rand.Rand, t *innetwork.Terms, sealed bool) []byte {
	b := make([]byte, rng.IntN(200))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	if len(b) < wire.SlotSize || rng.IntN(4) == 0 {
		return b
	}
	h := wire.Slot{
		Kind: wire.SlotKind(1 + rng.IntN(4)), Type: uint8(rng.IntN(12)), Op: uint8(rng.IntN(6)),
		Stripe: uint8(rng.IntN(t.Stripes)),
		Member: uint16(rng.IntN(3)), Owner: uint16(rng.IntN(4)), Slot: t.First + uint32(rng.IntN(t.Slots)), Job: t.Job,
	}
	if !sealed {
		h.Job++ // without tags, knowing the job is all that it takes
	}
	h.Put(b)
	return b
}

// TestGarbage sends junk from the members' own sockets, as who forges their
// addresses would, and from others', while operations run.
func TestGarbage(t *testing.T) {
	for _, word := range []string{"", secret} {
		t.Run("secret "+word, func(t *testing.T) {
			s := start(t, Config{Workers: 2, Secrets: secrets(word)})
			members := join(t, 2, at(s), func(h *session.Hello) { h.Secret = word })
			rng := rand.New(rand.NewPCG(3, 3))
			for round := range uint64(3) {
				for range 100 {
					for _, m := range members {
						for _, socket := range m.Session.Sockets() {
							_, err := unix.Write(socket.FD(), junk(rng, &m.Terms, word != ""))
							require.NoError(t, err)
						}
					}
				}
				reduceScatter(t, round, members, someOps...)
			}
			systest.Eventually(t, func() bool {
				c := s.Stats()
				return c.Garbage > 0 && (c.BadTags > 0 || word == "") && (c.Malformed > 0 || word != "")
			})
			for _, m := range members {
				require.NoError(t, m.Session.Err())
			}
		})
	}
}

// TestNobodyGetsMoreBack than he has sent, who forges a member's address: with a secret nothing, and without one as
// many datagrams as probes that are empty. A probe with a payload has its header once more.
func TestNobodyGetsMoreBack(t *testing.T) {
	const batches, batch, payload = 10, 50, 1000
	for _, word := range []string{"", secret} {
		t.Run("secret "+word, func(t *testing.T) {
			s := start(t, Config{Workers: 1, Chunk: 1024, Secrets: secrets(word)})
			members := join(t, 2, at(s), func(h *session.Hello) { h.Secret = word })
			forged := make([]byte, wire.SlotSize)
			if word != "" {
				forged = make([]byte, wire.SlotSize+payload)
			}
			h := wire.Slot{Kind: wire.Echo, Job: members[0].Terms.Job}
			h.Put(forged)
			begun := s.Stats()
			for sent := range batches { // each batch fits into the switch's queue
				for range batch {
					_, err := unix.Write(members[0].Session.Sockets()[0].FD(), forged)
					require.NoError(t, err)
				}
				systest.Eventually(t, func() bool {
					return s.Stats().BytesIn-begun.BytesIn >= uint64((sent+1)*batch*len(forged))
				})
			}
			ended := s.Stats()
			in, out := ended.BytesIn-begun.BytesIn, ended.BytesOut-begun.BytesOut
			if word == "" {
				require.InDelta(t, in, out, batch*wire.SlotSize, "what the node says by itself is in it")
			} else {
				require.Less(t, out, uint64(batch*wire.SlotSize))
				require.EqualValues(t, batches*batch, ended.BadTags)
			}
		})
	}
}

// TestStrangers sends a member's datagrams to the switch's port from another socket.
func TestStrangers(t *testing.T) {
	s := start(t, Config{Workers: 1})
	members := join(t, 2, at(s), nil)
	peer, err := unix.Getpeername(members[0].Session.Sockets()[0].FD())
	require.NoError(t, err)
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: peer.(*unix.SockaddrInet4).Port})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	h := wire.Slot{
		Kind: wire.Contribution, Type: uint8(reduce.F32), Slot: members[0].Terms.First, Job: members[0].Terms.Job,
	}
	b := make([]byte, wire.SlotSize+400)
	h.Put(b)
	for range 10 {
		_, _ = conn.Write(b) // refused: nobody listens to us there
	}
	reduceScatter(t, 1, members, someOps...)
	systest.Eventually(t, func() bool { return s.Stats().Results > 0 })
	require.Zero(t, s.Stats().Garbage+s.Stats().Malformed)
	var resent uint64 // by members that a busy machine made wait
	for _, m := range members {
		resent += m.Stats().Resent
	}
	require.LessOrEqual(t, s.Stats().Duplicates, resent)
}

func TestGarbageInSessions(t *testing.T) {
	s := start(t, Config{})
	members := join(t, 2, at(s), nil)
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x02{}", ""} {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite() // the switch may have hung up by now
		_, _ = io.Copy(io.Discard, conn)     // until the switch hangs up
		require.NoError(t, conn.Close())
	}
	reduceScatter(t, 1, members, someOps...)
	require.Positive(t, s.counters.refused[unproven].Load())
}

// cutter passes a session through, until it is cut: then it looks to both sides as if the other had been killed.
type cutter struct {
	net.Listener
	conns chan net.Conn
}

func newCutter(t *testing.T, to string) *cutter {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{ln, make(chan net.Conn, 2)}
	go func() {
		here, err := ln.Accept()
		if err != nil {
			return
		}
		there, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		c.conns <- here
		c.conns <- there
		go func() { _, _ = io.Copy(here, there) }()
		_, _ = io.Copy(there, here)
	}()
	t.Cleanup(func() { _ = ln.Close() })
	return c
}

func (c *cutter) cut() {
	_ = (<-c.conns).Close()
	_ = (<-c.conns).Close()
}

// TestAMemberDies in a job, and below a child; the others are told who.
func TestAMemberDies(t *testing.T) {
	for _, tree := range []bool{false, true} {
		root := start(t, Config{})
		node := root
		if tree {
			node = start(t, Config{Parent: root.Addr().String()})
		}
		c := newCutter(t, node.Addr().String())
		job := rand.Uint64()
		hello := func(r int) session.Hello {
			return session.Hello{Job: job, Ranks: 3, Rank: r, Timeout: systest.Limit}
		}
		var all errgroup.Group
		members := make([]*switchtest.Rank, 3)
		for r, addr := range []string{root.Addr().String(), node.Addr().String(), c.Addr().String()} {
			all.Go(func() (err error) {
				members[r], err = switchtest.Join(t.Context(), addr, hello(r))
				return err
			})
		}
		require.NoError(t, all.Wait())
		reduceScatter(t, 1, members, someOps...)
		c.cut()
		for _, m := range members[:2] {
			require.ErrorContains(t, lost(t, m.Session), "rank 2 is gone")
		}
		require.Error(t, lost(t, members[2].Session))
		for _, m := range members {
			_ = m.Close()
		}
		systest.Eventually(t, func() bool { return root.Stats().Memory == 0 && node.Stats().Memory == 0 })
	}
}

// TestAMemberLeaves early, as one does for which all operations are over.
func TestAMemberLeaves(t *testing.T) {
	s := start(t, Config{})
	members := join(t, 3, at(s), nil)
	reduceScatter(t, 1, members, someOps...)
	require.NoError(t, members[1].Close())
	systest.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, j := range s.jobs {
			return j.sessions == 2
		}
		return false
	})
	require.NoError(t, members[0].Session.Err())
	require.NoError(t, members[2].Session.Err())

	waiting, err := dial(t, s, session.Hello{Job: 1, Ranks: 2})
	require.NoError(t, err)
	other, err := dial(t, s, session.Hello{Job: 1, Ranks: 3, Rank: 1, Epoch: 1})
	require.NoError(t, err)
	require.ErrorContains(t, lost(t, waiting), "epoch 1 of the job has begun")
	third, err := dial(t, s, session.Hello{Job: 1, Ranks: 3, Rank: 2, InGroup: new(14), Epoch: 1})
	require.NoError(t, err)
	require.NoError(t, third.Close(nil))
	require.ErrorContains(t, lost(t, other), "rank 14 left before all ranks were there", "as the group names it")
}

// TestAMemberThatDoesNotRead neither sends nor reads, while the others of its job wait and another
// job runs.
func TestAMemberThatDoesNotRead(t *testing.T) {
	s := start(t, Config{Workers: 1})
	stuck := join(t, 3, at(s), nil)
	const count = 1 << 18
	ones := bytes.Repeat([]byte{1, 0, 0, 0}, len(stuck)*count)
	recv := make([][]byte, len(stuck))
	var all errgroup.Group
	run := func(r int) {
		recv[r] = make([]byte, 4*count)
		all.Go(func() error {
			return stuck[r].ReduceScatter(t.Context(), collective.Op{Count: count, Type: reduce.I32}, ones, recv[r])
		})
	}
	run(0)
	run(1)
	running := join(t, 2, at(s), nil)
	for round := range uint64(5) {
		reduceScatter(t, round, running, someOps...)
	}
	run(2)
	require.NoError(t, all.Wait())
	for _, b := range recv {
		require.NoError(t, switchtest.Equal(bytes.Repeat([]byte{3, 0, 0, 0}, count), b))
	}
}
