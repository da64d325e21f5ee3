package switchd

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// stranger speaks the frames of a session by hand, as far as it likes.
type stranger struct{ net.Conn }

// come connects to a switch and takes its greeting.
func come(t *testing.T, s *Server) stranger {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(systest.Deadline()))
	c := stranger{conn}
	var greeting struct{ Magic string }
	require.NoError(t, c.read(&greeting))
	require.Equal(t, "mcast switch", greeting.Magic)
	return c
}

func (c stranger) read(v any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

func (c stranger) write(t *testing.T, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	require.NoError(t, err)
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	require.NoError(t, err)
}

// ask requests to join a job, with a timeout of ten minutes, and takes the ports that the switch
// offers.
func (c stranger) ask(t *testing.T, r session.Request) (ports []uint16) {
	t.Helper()
	r.Version, r.Milliseconds = session.Version, 600_000
	c.write(t, r)
	var offer struct {
		Error string
		Ports []uint16
	}
	require.NoError(t, c.read(&offer))
	require.Empty(t, offer.Error)
	return offer.Ports
}

// TestTinyDatagrams has members claim paths that carry next to nothing.
func TestTinyDatagrams(t *testing.T) {
	s := start(t, Config{Workers: 1})
	for more := -1; more <= 8; more++ {
		c := come(t, s)
		ports := c.ask(t, session.Request{Job: uint64(100 + more), Ranks: 1})
		require.Len(t, ports, 1)
		c.write(t, session.Sockets{Ports: []uint16{9}, Queue: 1, Datagram: wire.SlotSize + more})
		var note struct{ Kind, Text string }
		require.NoError(t, c.read(&note))
		require.Equal(t, "error", note.Kind)
		require.Contains(t, note.Text, fmt.Sprintf("datagrams of %d bytes", wire.SlotSize+more))
	}
	reduceScatter(t, 1, join(t, 2, at(s), nil), someOps...)
}

// TestAMemberThatNeverAnswers is admitted and then tells nothing of its sockets. It goes with its
// job, even if it asked for a longer silence.
func TestAMemberThatNeverAnswers(t *testing.T) {
	systest.Waits(t)
	t.Parallel()
	s := start(t, Config{JoinTimeout: handshake / 2}) // before the handshake is over
	c := come(t, s)
	c.ask(t, session.Request{Job: 1, Ranks: 2})
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	systest.Eventually(t, func() bool { return s.Stats().Jobs == 0 })
	require.Equal(t, uint64(1), s.counters.refused[incomplete].Load())
}

// TestCloseHangsUp on strangers, on those who are admitted and never answer,
// and on members, however long they ask to be waited for.
func TestCloseHangsUp(t *testing.T) {
	s := start(t, Config{JoinTimeout: 10 * time.Minute})
	silent, offered, joined := come(t, s), come(t, s), come(t, s)
	offered.ask(t, session.Request{Job: 1, Ranks: 2})
	ports := joined.ask(t, session.Request{Job: 1, Ranks: 2, Rank: 1})
	joined.write(t, session.Sockets{Ports: ports, Queue: 1, Datagram: 1400})
	require.NoError(t, s.Close())
	for _, c := range []stranger{silent, offered, joined} {
		_, err := io.Copy(io.Discard, c.Conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded) // a reset will do
	}
	require.Empty(t, s.conns)
}

// TestEarlyDatagrams of a member that waits for another rank of its job take no memory of the
// switch's kernel: none of them is left when the job starts.
func TestEarlyDatagrams(t *testing.T) {
	s := start(t, Config{Workers: 1})
	job := session.Hello{Job: 1, Ranks: 2}
	early, err := dial(t, s, job)
	require.NoError(t, err)
	systest.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, j := range s.jobs {
			j.mu.Lock()
			defer j.mu.Unlock()
			return len(j.members) == 1
		}
		return false
	})
	for range 100 {
		_, err := unix.Write(early.Sockets()[0].FD(), make([]byte, 1000))
		require.NoError(t, err)
	}
	job.Rank = 1
	_, err = dial(t, s, job)
	require.NoError(t, err)
	_, _, err = early.Ready(t.Context())
	require.NoError(t, err)
	_, err = unix.Write(early.Sockets()[0].FD(), make([]byte, 1000)) // on loopback behind all others
	require.NoError(t, err)
	systest.Eventually(t, func() bool { return s.Stats().Garbage > 0 })
	require.Equal(t, uint64(1), s.Stats().Garbage)
}

// TestManyStrangers take all places that those of their address have, and none of others. They have each for a second.
func TestManyStrangers(t *testing.T) {
	s := start(t, Config{Members: 200})
	for range 2 * minPending {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetReadDeadline(systest.Deadline()))
		_ = stranger{conn}.read(&struct{}{}) // the greeting, or nothing
		s.pending.mu.Lock()
		require.LessOrEqual(t, len(s.pending.all[network(stranger{conn})]), minPending)
		s.pending.mu.Unlock()
	}
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	require.NoError(t, stranger{other}.read(&struct{}{}))
	systest.Eventually(t, func() bool { // when one of the strangers has had his second
		_, err := dial(t, s, session.Hello{Job: 1})
		return err == nil
	})
}

// caller is a connection from an address.
type caller struct {
	net.Conn
	from   string
	closed bool
}

func (c *caller) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

func (c *caller) Close() error {
	c.closed = true
	return nil
}

// TestPlacesOfStrangers: a newcomer gets the place of the oldest of his network once that one has had his time, and no
// other place.
func TestPlacesOfStrangers(t *testing.T) {
	s, start := newPendingConns(0), time.Now()
	all := make([]*caller, minPending)
	for i := range all {
		all[i] = &caller{from: "2001:db8::1:" + fmt.Sprint(i)}
		_, ok := s.enter(all[i], start.Add(time.Duration(i)))
		require.True(t, ok)
	}
	_, ok := s.enter(&caller{from: "2001:db8::2"}, start.Add(pendingTime-1))
	require.False(t, ok)
	_, ok = s.enter(&caller{from: "2001:db8:0:1::"}, start)
	require.True(t, ok)
	last, ok := s.enter(&caller{from: "2001:db8::2"}, start.Add(pendingTime))
	require.True(t, ok)
	for i, c := range all {
		require.Equal(t, i == 0, c.closed)
	}
	s.leave(last)
	s.leave(last) // twice is once
	for range 2 {
		_, ok = s.enter(&caller{from: "2001:db8::3"}, start.Add(pendingTime))
		require.Equal(t, last != nil, ok)
		last = nil
	}
	for _, there := range s.all {
		for _, one := range slices.Clone(there) {
			s.leave(one)
		}
	}
	require.Empty(t, s.all)
}

// TestFailedProofs cost a stranger his place for a second: so many are looked at.
func TestFailedProofs(t *testing.T) {
	s := start(t, Config{Members: 200, Secrets: secrets(secret)})
	begun := time.Now()
	looked := 0
	for range 4 * minPending {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(systest.Deadline()))
		if (stranger{conn}).read(&struct{}{}) == nil {
			looked++
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
			require.NoError(t, err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the switch hangs up
		require.NoError(t, conn.Close())
	}
	seconds := int(time.Since(begun) / pendingTime) //nolint:forbidigo // the more time it took, the more were looked at
	require.LessOrEqual(t, looked, minPending*(1+seconds))
	systest.Eventually(t, func() bool {
		_, err := dial(t, s, session.Hello{Job: 1, Secret: secret})
		return err == nil
	})
	systest.Eventually(t, func() bool {
		s.pending.mu.Lock()
		defer s.pending.mu.Unlock()
		return len(s.pending.all) == 0
	})
}

// TestFloodOfProofs: strangers at many addresses prove a secret that the switch does not know, over and over, while a
// job runs and others join. Sums are right, and a member that knows a secret gets in.
func TestFloodOfProofs(t *testing.T) {
	s := start(t, Config{Workers: 1, Members: 200, Secrets: secrets(secret)})
	members := join(t, 2, at(s), func(h *session.Hello) { h.Secret = secret })
	wrong, err := identity.New("a-secret-of-somebody-else")
	require.NoError(t, err)
	var over atomic.Bool
	var flood sync.WaitGroup
	defer flood.Wait()
	defer over.Store(true)
	for i := range 8 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
		flood.Go(func() {
			for !over.Load() {
				conn, err := from.Dial("tcp", s.Addr().String())
				if err != nil {
					continue // its ports are all in use
				}
				_ = conn.SetDeadline(systest.Deadline())
				if (stranger{conn}).read(&struct{}{}) == nil {
					_, err = wrong.Present(conn)
					assert.Error(t, err)
				}
				_ = conn.Close()
			}
		})
	}
	systest.Eventually(t, func() bool { return s.counters.refused[unproven].Load() > 20 })
	for seed := range uint64(3) {
		reduceScatter(t, seed, members, someOps...)
		one, err := dial(t, s, session.Hello{Job: 100 + seed, Ranks: 2, Secret: secret})
		require.NoError(t, err)
		require.NoError(t, one.Err())
	}
}

// parent is a switch that offers a data port to the first that connects, and then talks to it. It
// returns where it listens.
func parent(t *testing.T, port uint16, talk func(p *session.Peer)) (address string) {
	t.Helper()
	root, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	go func() {
		conn, err := root.Accept()
		if err != nil {
			return
		}
		p, err := session.Accept(conn, nil, systest.Limit)
		if err != nil {
			return
		}
		defer p.Close()
		if p.Offer([]uint16{port}) == nil {
			talk(p)
		}
	}()
	return root.Addr().String()
}

// TestAChildTellsTheDifference has ranks join a child one after another: it tells its parent of
// each once, so its messages are as long as the news.
func TestAChildTellsTheDifference(t *testing.T) {
	const ranks = 5
	said := make(chan []int, ranks)
	s := start(t, Config{Parent: parent(t, 9, func(p *session.Peer) {
		for b, err := p.Next(); err == nil; b, err = p.Next() {
			said <- b.Ranks
		}
	})})
	for r := range ranks {
		_, err := dial(t, s, session.Hello{Job: 1, Ranks: ranks + 1, Rank: r})
		require.NoError(t, err)
		news := systest.Receive(t, said, "the parent hears nothing")
		require.Equal(t, []int{r}, news)
	}
}

// TestAChildThatRepeatsItself brings no ranks that it has named before.
func TestAChildThatRepeatsItself(t *testing.T) {
	s := start(t, Config{Workers: 1})
	child, err := dial(t, s, session.Hello{Job: 1, Ranks: 3, Child: true})
	require.NoError(t, err)
	for _, ranks := range [][]int{{2}, {0, 2}, {2}} {
		require.NoError(t, child.ReportBelow(session.Below{Ranks: ranks, Chunk: 1024, Room: 1 << 20}))
	}
	systest.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, j := range s.jobs {
			j.mu.Lock()
			defer j.mu.Unlock()
			return !j.running && len(j.presentRanks()) == 2
		}
		return false
	})
	last, err := dial(t, s, session.Hello{Job: 1, Ranks: 3, Rank: 1})
	require.NoError(t, err)
	_, number, err := last.Ready(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, number) // after the child, which has rank 0 as its lowest
}

// TestAJobEndsWhileItsParentIsProbed: a rank leaves while the switch waits for the parent's answers,
// which never come; nobody reads the sockets any more when they are closed.
func TestAJobEndsWhileItsParentIsProbed(t *testing.T) {
	mute, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = mute.Close() }()
	port := uint16(mute.LocalAddr().(*net.UDPAddr).Port)
	s := start(t, Config{Parent: parent(t, port, func(p *session.Peer) {
		for came := 0; came < 2; {
			b, err := p.Next()
			if err != nil {
				return
			}
			came += len(b.Ranks)
		}
		_ = p.Ready(innetwork.Terms{Job: 7, Ranks: 2, Stripes: 1, Chunk: 1024, Slots: 16, Queue: 5, Wide: true}, 0)
		_, _ = p.Next() // until the switch leaves
	})})
	leaves, err := dial(t, s, session.Hello{Job: 1})
	require.NoError(t, err)
	stays, err := dial(t, s, session.Hello{Job: 1, Rank: 1})
	require.NoError(t, err)
	require.NoError(t, mute.SetReadDeadline(systest.Deadline()))
	_, err = mute.Read(make([]byte, 2048))
	require.NoError(t, err, "the probe is under way")
	require.NoError(t, leaves.Close(nil))
	require.ErrorContains(t, lost(t, stays), "rank 0 left before all ranks were there")
	systest.Eventually(t, func() bool { return s.Stats().Jobs == 0 })
}
