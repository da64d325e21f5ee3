package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const (
	secret = "correct-horse-battery-staple"
)

var someTerms = innetwork.Terms{
	Job: 77, Ranks: 3, Stripes: 2, Chunk: 1024, Slots: 16, First: 1<<32 - 3, Queue: 5, Wide: true,
}

// node is a switch at the other end of a Dial.
type node struct {
	net.Listener
	peers   chan *Peer
	errs    chan error
	sockets []*datagram.Socket // of the members that came, once they are peers
}

// listen starts a switch that offers two stripes to whom it admits.
func listen(t *testing.T, secrets Secrets) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ring, err := secrets.Ring(1)
	require.NoError(t, err)
	n := &node{Listener: ln, peers: make(chan *Peer, 8), errs: make(chan error, 8)}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p, err := Accept(conn, ring, systest.Limit)
			if err == nil {
				if err = p.Offer(n.ports(t)); err != nil {
					p.Close()
				}
			}
			if err != nil {
				n.errs <- err
				continue
			}
			n.peers <- p
		}
	}()
	t.Cleanup(func() { _ = ln.Close() })
	return n
}

func (n *node) ports(t *testing.T) (ports []uint16) {
	for range 2 {
		s, err := datagram.Open(datagram.Options{Local: addrOf(n.Addr())})
		assert.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		n.sockets = append(n.sockets, s)
		ports = append(ports, s.Port())
	}
	return ports
}

func (n *node) peer(t *testing.T) *Peer {
	t.Helper()
	select {
	case p := <-n.peers:
		t.Cleanup(p.Close)
		return p
	case err := <-n.errs:
		require.NoError(t, err)
	case <-systest.Context(t).Done():
		require.Fail(t, "nobody came")
	}
	return nil
}

func dial(t *testing.T, n *node, change func(*Hello)) (*Session, error) {
	t.Helper()
	h := Hello{Job: 1 << 63, Epoch: 4, Ranks: 3, Rank: 1, Timeout: systest.Limit}
	if change != nil {
		change(&h)
	}
	s, err := Dial(t.Context(), n.Addr().String(), h)
	if err == nil {
		t.Cleanup(func() { _ = s.Close(nil) })
	}
	return s, err
}

func lost(t *testing.T, s *Session) error {
	t.Helper()
	systest.Receive(t, s.Lost(), "the session goes on")
	return s.Err()
}

// send returns a datagram as it travels.
func send(t *testing.T, s *Seals, h wire.Slot) (head, payload []byte) {
	t.Helper()
	b, err := datagram.NewBatch(s.Head(), 1000)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	var c carried
	_, ok := s.Add(b, &h, []byte("payload"))
	require.True(t, ok)
	n, err := b.Flush(datagram.Carried(1, netip.AddrPort{}, &c))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	return c.head, c.payload
}

// carried is a socket of one datagram that was sent.
type carried struct {
	datagram.Carrier
	head, payload []byte
}

func (c *carried) Send(head, payload []byte) syscall.Errno {
	c.head, c.payload = clone(head), clone(payload)
	return 0
}

// clone returns a copy with room for a seal behind it.
func clone(b []byte) []byte { return slices.Grow(slices.Clone(b), seal.Spare) }

func TestASession(t *testing.T) {
	for name, encrypt := range map[string]bool{"none": false, "tags": false, "encryption": true} {
		t.Run(name, func(t *testing.T) {
			word := ""
			if name != "none" {
				word = secret
			}
			var secrets Secrets
			if word != "" {
				secrets = Secrets{{Name: "other", Text: "a-secret-of-somebody-else"}, {Name: "mine", Text: word}}
			}
			n := listen(t, secrets)
			s, err := dial(t, n, func(h *Hello) { h.Secret, h.Encrypt, h.Reproducible = word, encrypt, true })
			require.NoError(t, err)
			p := n.peer(t)
			require.Equal(t, uint64(1<<63), p.Job)
			require.Equal(t, uint32(4), p.Epoch)
			require.Equal(t, [2]int{3, 1}, [2]int{p.Ranks, p.Rank})
			require.True(t, p.Reproducible)
			require.Equal(t, encrypt, p.Encrypt)
			require.False(t, p.Child)
			require.Equal(t, word != "", p.Tenant.Name == "mine")
			require.Len(t, s.Sockets(), 2)
			for i, socket := range s.Sockets() {
				require.Equal(t, p.Ports[i], socket.Port())
			}
			require.Equal(t, s.Datagram(), p.Datagram)
			require.Greater(t, p.Datagram, 1000)
			require.Equal(t, p.Head(), s.Head())

			require.NoError(t, p.Ready(someTerms, 2))
			terms, number, err := s.Ready(t.Context())
			require.NoError(t, err)
			require.Equal(t, someTerms, terms)
			require.Equal(t, 2, number)

			for stripe := range 2 {
				of, at, other := s.Seals(stripe), p.Seals(stripe), p.Seals(1-stripe)
				if word == "" {
					require.Nil(t, of.Out)
					require.Nil(t, at.Out)
					continue
				}
				again := s.Seals(stripe)
				require.Same(t, of.Out, again.Out, "counters begin once")
				at.Begin(someTerms.First)
				other.Begin(someTerms.First)
				h := wire.Slot{Kind: wire.Result, Slot: someTerms.First + 5, Factor: 3}
				head, payload := send(t, &of, h)
				require.Equal(t, encrypt, string(payload) != "payload")
				require.False(t, other.Open(new(wire.Slot), head, clone(payload)), "one of another stripe")
				require.False(t, of.Open(new(wire.Slot), head, clone(payload)), "a member's datagram came back to it")
				require.True(t, at.Open(&h, head, payload))
				require.Equal(t, "payload", string(payload))
				head, payload = send(t, &at, h)
				require.False(t, at.Open(new(wire.Slot), head, clone(payload)), "a node's datagram came back to it")
				require.True(t, of.Open(&h, head, payload))
				require.Equal(t, "payload", string(payload))
			}
			select {
			case <-s.Lost():
				require.NoError(t, s.Err())
			default:
			}

			require.NoError(t, s.Close(nil))
			_, err = p.Next()
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, s.Err(), ErrClosed)
		})
	}
}

func TestHowASessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Peer)
		want string
		is   func(*testing.T, error)
	}{
		"drain": {func(p *Peer) { _ = p.Drain() }, ErrDraining.Error(),
			func(t *testing.T, err error) { require.ErrorIs(t, err, ErrDraining) }},
		"error": {func(p *Peer) {
			_ = p.Fail(&Error{"rank 2 is gone", true, &collective.Disagreement{Ranks: [2]int{2, -1}, What: [2]string{"a", "b"}}})
		}, "rank 2 is gone", func(t *testing.T, err error) {
			var e *Error
			require.ErrorAs(t, err, &e)
			require.True(t, e.Mismatch)
			require.Equal(t, &collective.Disagreement{Ranks: [2]int{2, -1}, What: [2]string{"a", "b"}}, e.Between)
		}},
		"closed": {func(p *Peer) { p.Close() }, "without a farewell", nil},
		"terms": {func(p *Peer) { _ = p.Ready(innetwork.Terms{Ranks: 3, Stripes: 2, Chunk: 1 << 20, Slots: 1}, 0) },
			"chunks of 1048576 bytes", nil},
		"slots": {func(p *Peer) { _ = p.Ready(innetwork.Terms{Job: 1, Ranks: 3, Stripes: 2, Chunk: 8, Slots: 3}, 0) },
			"3 slots", nil},
		"number": {func(p *Peer) { _ = p.Ready(someTerms, 3) }, "member number 3", nil},
		"kind":   {func(p *Peer) { _ = p.line.write(note{Kind: "dance"}) }, "dance", nil},
		"junk":   {func(p *Peer) { _, _ = p.line.conn.Write([]byte("\x00\x00\x00\x02no")) }, "invalid character", nil},
		"length": {func(p *Peer) { _, _ = p.line.conn.Write([]byte("GET / HTTP/1.1\r\n")) }, "frame of 1195725856 bytes",
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, nil)
			s, err := dial(t, n, nil)
			require.NoError(t, err)
			c.end(n.peer(t))
			err = lost(t, s)
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				c.is(t, err)
			}
			_, _, again := s.Ready(t.Context())
			require.Equal(t, err, again)
		})
	}
}

func TestAMembersReasonToLeave(t *testing.T) {
	n := listen(t, nil)
	s, err := dial(t, n, nil)
	require.NoError(t, err)
	p := n.peer(t)
	require.NoError(t, s.Close(fmt.Errorf("no memory")))
	_, err = p.Next()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "no memory", e.Text)
}

func TestAChildTellsWhatIsBelow(t *testing.T) {
	n := listen(t, nil)
	s, err := dial(t, n, func(h *Hello) { h.Child = true })
	require.NoError(t, err)
	p := n.peer(t)
	require.True(t, p.Child)
	for _, b := range []Below{{[]int{2}, nil, 1472, 1 << 20}, {[]int{2, 0}, []int{9, 4}, 1400, 1 << 19}} {
		require.NoError(t, s.ReportBelow(b))
		got, err := p.Next()
		require.NoError(t, err)
		require.Equal(t, b, got)
	}
	// A rank has nothing below it.
	s, err = dial(t, n, nil)
	require.NoError(t, err)
	p = n.peer(t)
	require.NoError(t, s.ReportBelow(Below{}))
	_, err = p.Next()
	require.ErrorContains(t, err, "below")
}

func TestWhoIsNotAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		secrets Secrets
		change  func(*Hello)
		want    string
	}{
		"wrong secret": {Secrets{{Text: "a-secret-of-somebody-else"}}, func(h *Hello) { h.Secret = secret },
			"does not know this secret"},
		"no secret":      {Secrets{{Text: secret}}, nil, "set MCAST_SECRET"},
		"no key":         {nil, func(h *Hello) { h.Encrypt = true }, "MCAST_ENCRYPT takes MCAST_SECRET"},
		"open node":      {nil, func(h *Hello) { h.Secret = secret }, "the switch has no secrets"},
		"short secret":   {nil, func(h *Hello) { h.Secret = "hey" }, "want at least 22"},
		"white space":    {nil, func(h *Hello) { h.Secret = "several words, of white space" }, "white space"},
		"long secret":    {nil, func(h *Hello) { h.Secret = strings.Repeat("x", 257) }, "at most 256"},
		"rank":           {nil, func(h *Hello) { h.Rank = 3 }, "rank 3 of 3"},
		"ranks":          {nil, func(h *Hello) { h.Ranks = 1 << 16 }, "65536 ranks"},
		"absurd timeout": {nil, func(h *Hello) { h.Timeout = time.Hour }, "timeout of 3600000 ms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dial(t, listen(t, c.secrets), c.change)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

// A switch checks for itself what a member checks before it asks.
func TestRequestsAreChecked(t *testing.T) {
	good := Request{Version: Version, Ranks: 2, Milliseconds: 1000}
	for name, c := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"version": {func(r *Request) { r.Version = 10 }, "version 10"},
		"rank":    {func(r *Request) { r.Rank = -1 }, "rank -1 of 2"},
		"timeout": {func(r *Request) { r.Milliseconds = 1 << 60 }, "a timeout of"},
		"hurry":   {func(r *Request) { r.Milliseconds = 499 }, "want 500ms to"},
		"no key":  {func(r *Request) { r.Encrypt = true }, "MCAST_ENCRYPT takes MCAST_SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, nil)
			conn, err := net.Dial("tcp", n.Addr().String())
			require.NoError(t, err)
			l := newLine(conn, systest.Limit)
			defer l.close()
			var g greeting
			require.NoError(t, l.read(&g, systest.Limit))
			r := good
			c.change(&r)
			require.NoError(t, l.write(r))
			var o offer
			require.NoError(t, l.read(&o, systest.Limit))
			require.Contains(t, o.Error, c.want)
		})
	}
}

func TestGarbageIsNoMember(t *testing.T) {
	n := listen(t, nil)
	huge := binary.BigEndian.AppendUint32(nil, 1<<31-1)
	for _, junk := range []string{"GET / HTTP/1.1\r\n\r\n", string(huge), "\x00\x00\x00\x04null", "\x00\x00\x00\x02{}",
		"\x00\x00\x00\x01", ""} {
		conn, err := net.Dial("tcp", n.Addr().String())
		require.NoError(t, err)
		_, err = conn.Write([]byte(junk))
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite() // the switch may have hung up by now
		_, _ = io.Copy(io.Discard, conn)     // until the switch hangs up
		require.NoError(t, conn.Close())
		require.Error(t, <-n.errs)
	}
	s, err := dial(t, n, nil)
	require.NoError(t, err)
	require.NoError(t, s.Err())
	n.peer(t)
}

func TestGarbageIsNoNode(t *testing.T) {
	for _, junk := range []string{"SSH-2.0-OpenSSH\r\n", "\x00\x00\x00\x02{}", ""} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			if conn, err := ln.Accept(); err == nil {
				_, _ = conn.Write([]byte(junk))
				_ = conn.Close()
			}
		}()
		_, err = Dial(t.Context(), ln.Addr().String(), Hello{Ranks: 1})
		require.ErrorContains(t, err, ln.Addr().String())
		require.ErrorContains(t, err, "greet")
		require.NoError(t, ln.Close())
	}
}

func TestDialIsBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never speaks
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	_, err = Dial(t.Context(), ln.Addr().String(), Hello{Ranks: 1, Timeout: 50 * time.Millisecond})
	require.ErrorContains(t, err, "timeout")
	ctx, cancel := context.WithCancel(t.Context())
	systest.Later(20*time.Millisecond, cancel)
	_, err = Dial(ctx, ln.Addr().String(), Hello{Ranks: 1, Timeout: systest.Limit})
	require.ErrorIs(t, err, context.Canceled)
}

// TestSilence freezes both sides in turn: a line that neither pings nor closes.
func TestSilence(t *testing.T) {
	systest.Waits(t)
	for _, who := range []string{"node", "member"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			n := listen(t, nil)
			s, err := dial(t, n, func(h *Hello) { h.Timeout = 5 * time.Second }) // time enough to begin
			require.NoError(t, err)
			p := n.peer(t)
			if who == "node" {
				close(p.line.stop)
				p.line.once.Do(func() {}) // close must not do so again
				require.ErrorContains(t, lost(t, s), "silent for 7s")
				_ = p.line.conn.Close()
				return
			}
			close(s.line.stop)
			s.line.once.Do(func() {})
			_, err = p.Next()
			require.ErrorContains(t, err, "silent for 7s")
			_ = s.line.conn.Close()
		})
	}
}
