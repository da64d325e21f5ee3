package switchd

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd/switchtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// middle is somebody on the path of the datagrams between a member's socket and the switch's: all go through him.
type middle struct {
	toMember, toNode *net.UDPConn
	meddle           func(up bool, b []byte) [][]byte // what he passes on in place of a datagram

	mu       sync.Mutex
	up, down [][]byte // recorded: to the switch, to the member
}

// between puts him between two addresses. Each of the two sees another address of his.
func between(t *testing.T, member, node, asNode, asMember netip.AddrPort) *middle {
	t.Helper()
	open := func(from, to netip.AddrPort) *net.UDPConn {
		c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		require.NoError(t, err)
		_ = c.SetReadBuffer(4 << 20) // as much as there may be: lost datagrams are sent again
		return c
	}
	m := &middle{toMember: open(asNode, member), toNode: open(asMember, node)}
	var relays sync.WaitGroup
	relays.Go(func() { m.relay(m.toMember, m.toNode, &m.up) })
	relays.Go(func() { m.relay(m.toNode, m.toMember, &m.down) })
	t.Cleanup(func() {
		_, _ = m.toMember.Close(), m.toNode.Close()
		relays.Wait()
	})
	return m
}

func (m *middle) relay(from, to *net.UDPConn, record *[][]byte) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n == 0 && err != nil {
			if _, closed := from.Write(nil); closed != nil { // else nobody listened to something earlier
				return
			}
			continue
		}
		m.mu.Lock()
		*record = append(*record, slices.Clone(b[:n]))
		meddle := m.meddle
		m.mu.Unlock()
		all := [][]byte{b[:n]}
		if meddle != nil {
			all = meddle(to == m.toNode, b[:n])
		}
		for _, d := range all {
			_, _ = to.Write(d) // may be lost
		}
	}
}

// recorded returns what has passed, in one direction.
func (m *middle) recorded(up bool) [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if up {
		return slices.Clone(m.up)
	}
	return slices.Clone(m.down)
}

// joinThrough has two ranks join a switch, rank 0 by somebody in the middle, one for each stripe. He cannot read which
// ports the session agrees on, but sees packets; here the test tells him.
func joinThrough(t *testing.T, s *Server, change func(*session.Hello)) ([]*switchtest.Rank, []*middle) {
	t.Helper()
	asNode, asMember := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	ln, err := net.Listen("tcp4", netip.AddrPortFrom(asNode, 0).String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		here, err := ln.Accept()
		if err != nil {
			return
		}
		defer here.Close()
		there, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(asMember, 0))}).Dial("tcp",
			s.Addr().String())
		if err != nil {
			return
		}
		defer there.Close()
		go func() { _, _ = io.Copy(here, there); _ = here.Close() }()
		_, _ = io.Copy(there, here)
	}()
	var sessions []*session.Session
	var hellos []session.Hello
	for r, at := range []string{ln.Addr().String(), s.Addr().String()} {
		h := session.Hello{Job: 5, Ranks: 2, Rank: r, Reproducible: true, Timeout: systest.Limit}
		change(&h)
		one, err := session.Dial(t.Context(), at, h)
		require.NoError(t, err)
		sessions, hellos = append(sessions, one), append(hellos, h)
	}
	var spies []*middle
	for _, socket := range sessions[0].Sockets() {
		member, node := netip.AddrPortFrom(socket.Local(), socket.Port()), socket.Peer()
		spies = append(spies, between(t, member, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), node.Port()),
			netip.AddrPortFrom(asNode, node.Port()), netip.AddrPortFrom(asMember, member.Port())))
	}
	var members []*switchtest.Rank
	for r, one := range sessions {
		m, err := switchtest.Attach(t.Context(), one, hellos[r])
		require.NoError(t, err)
		t.Cleanup(func() { _ = m.Close() })
		members = append(members, m)
	}
	return members, spies
}

var oneOp = collective.Op{Count: 40_003, Type: reduce.F32, Reduction: reduce.Sum}

// contains reports whether some datagram has part of what rank 0 contributes in clear.
func contains(spies []*middle, seed uint64) bool {
	gradients := inputs(seed, 2, oneOp)[0][0][4*oneOp.Count:][:256] // of rank 1's shard
	for _, m := range spies {
		for _, b := range m.recorded(true) {
			if bytes.Contains(b, gradients) {
				return true
			}
		}
	}
	return false
}

// TestOnThePath: without a secret, somebody between rank and switch reads gradients and changes sums.
func TestOnThePath(t *testing.T) {
	s := start(t, Config{Workers: 1, Chunk: 1416})
	members, spies := joinThrough(t, s, func(*session.Hello) {})
	reduceScatter(t, 1, members, oneOp)
	require.True(t, contains(spies, 1))
	for _, m := range spies {
		m.mu.Lock()
		m.meddle = func(_ bool, b []byte) [][]byte {
			var h wire.Slot
			if h.Get(b) == nil && (h.Kind == wire.Contribution || h.Kind == wire.Result) {
				b[wire.SlotSize+2] ^= 0x40 // of a mantissa
			}
			return [][]byte{b}
		}
		m.mu.Unlock()
	}
	require.ErrorContains(t, tryReduceScatter(t, 2, members, oneOp), "want", "a sum that is wrong, in silence")
}

// TestOnThePathWithSecret: with one he changes nothing, even if he sends first, and with encryption he reads nothing.
func TestOnThePathWithSecret(t *testing.T) {
	for name, encrypt := range map[string]bool{"tags": false, "encryption": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Config{
				Workers: 1, Chunk: 1416, Secrets: session.Secrets{{Text: "the-secret-of-the-first-tenant"}, {Text: secret}},
			})
			members, spies := joinThrough(t, s, func(h *session.Hello) { h.Secret, h.Encrypt = secret, encrypt })
			reduceScatter(t, 1, members, oneOp)
			require.Equal(t, !encrypt, contains(spies, 1))
			for i, m := range spies {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				var mu sync.Mutex // of r: both directions ask
				m.mu.Lock()
				m.meddle = func(up bool, b []byte) [][]byte {
					mu.Lock()
					defer mu.Unlock()
					return append(forgeries(r, b, m.recorded(up), m.recorded(!up), spies[1-i].recorded(up)), b)
				}
				m.mu.Unlock()
			}
			for seed := range uint64(3) {
				reduceScatter(t, 2+seed, members, oneOp)
			}
			require.Equal(t, !encrypt, contains(spies, 3))
			require.NoError(t, members[0].Session.Err())
			systest.Eventually(t, func() bool { return s.Stats().BadTags > 0 })
			require.Positive(t, members[0].Stats().Refused)
		})
	}
}

// forgeries are what somebody may make of a datagram and of what he has recorded: of the same direction, of the other
// one, and of another stripe.
func forgeries(r *rand.Rand, b []byte, recorded, other, stripe [][]byte) (all [][]byte) {
	flipped := slices.Clone(b)
	bit := r.IntN(8 * len(b))
	flipped[bit/8] ^= 1 << (bit % 8)
	moved := slices.Clone(b) // to another slot
	moved[19] ^= byte(1 + r.IntN(7))
	counted := slices.Clone(b) // as another datagram of the sender
	counted[wire.SlotSize+7] ^= byte(1 + r.IntN(7))
	all = [][]byte{flipped, moved, counted, b[:r.IntN(len(b))], append(slices.Clone(b), 0)}
	for _, from := range [][][]byte{recorded, other, stripe} {
		if len(from) > 0 {
			all = append(all, from[r.IntN(len(from))])
		}
	}
	return all
}

// wrapped is two ranks and one stripe of a switch, without sessions. Each rank's datagrams go through a middle.
type wrapped struct {
	terms   innetwork.Terms
	nodes   []*datagram.Socket // the switch's, by member
	sockets []*datagram.Socket // of the members
	at, of  []session.Seals    // the switch's, the members'
	spies   []*middle
}

// begin lets switch and ranks start at the first slot, as they do after 2^32. The switch has ended when end returns.
func (w *wrapped) begin(t *testing.T) (members []*switchtest.Rank, node *worker, end func()) {
	t.Helper()
	c := innetwork.StageConfig{Terms: w.terms, Members: 2, Owner: []int{0, 1}, Reproducible: true}
	c.Memory = make([]byte, innetwork.MemoryFor(&c))
	j := &job{}
	for r := range 2 {
		j.members = append(j.members, &member{peer: &session.Peer{}, ranks: []int{r}, sockets: w.nodes[r : r+1]})
	}
	s, err := newStripe(j, c)
	require.NoError(t, err)
	for r, l := range s.links {
		l.seals = w.at[r]
	}
	node, err = newWorker(session.Kernel{})
	require.NoError(t, err)
	node.add(s)
	var running sync.WaitGroup
	running.Go(node.run)
	end = func() {
		node.stop()
		running.Wait()
	}
	t.Cleanup(end)
	for r := range 2 {
		path, err := session.NewDatapath(session.DatapathConfig{
			Sockets: w.sockets[r : r+1], Seals: w.of[r : r+1], Chunk: w.terms.Chunk, Close: func() error { return nil },
		})
		require.NoError(t, err)
		m := switchtest.Over(path, w.terms, r, r)
		t.Cleanup(func() { assert.NoError(t, m.Close()) })
		members = append(members, m)
	}
	return members, node, end
}

// newWrapped connects them.
func newWrapped(t *testing.T, kind seal.Kind) *wrapped {
	t.Helper()
	w := &wrapped{
		terms: innetwork.Terms{Job: 9, Ranks: 2, Stripes: 1, Tracks: 1, Chunk: 1024, Slots: 64, First: 1<<32 - 3, Queue: 64},
	}
	on := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	for r := range 2 {
		node, member := open(t, 0), open(t, 0)
		m := between(t, on(member.Port()), on(node.Port()), on(0), on(0))
		require.NoError(t, member.Connect(m.toMember.LocalAddr().(*net.UDPAddr).AddrPort()))
		require.NoError(t, node.Connect(m.toNode.LocalAddr().(*net.UDPAddr).AddrPort()))
		up, down := bytes.Repeat([]byte{byte(r)}, seal.KeySize), bytes.Repeat([]byte{byte(2 + r)}, seal.KeySize)
		w.nodes, w.sockets, w.spies = append(w.nodes, node), append(w.sockets, member), append(w.spies, m)
		w.at = append(w.at, session.Seals{Out: seal.New(kind, down, 0), In: seal.New(kind, up, 0)})
		w.of = append(w.of, session.Seals{Out: seal.New(kind, up, 0), In: seal.New(kind, down, 0)})
		w.at[r].Begin(w.terms.First)
		w.of[r].Begin(w.terms.First)
	}
	return w
}

// wrap has 2^32 slots go by; the members send a datagram now and then.
func (w *wrapped) wrap(t *testing.T) {
	t.Helper()
	b, err := datagram.NewBatch(w.of[0].Head(), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	for r := range w.of {
		for quarter := range uint32(4) {
			h := wire.Slot{Kind: wire.Status, Slot: w.terms.First + (quarter+1)<<30, Job: w.terms.Job}
			var sent carried
			_, ok := w.of[r].Add(b, &h, nil)
			require.True(t, ok)
			_, err := b.Flush(datagram.Carried(1, netip.AddrPort{}, &sent))
			require.NoError(t, err)
			require.True(t, w.at[r].Open(&h, sent.head, slices.Grow([]byte{}, seal.Spare)))
		}
	}
}

// carried is a socket that keeps the header of what was sent.
type carried struct {
	datagram.Carrier
	head []byte
}

func (c *carried) Send(head, _ []byte) syscall.Errno {
	c.head = slices.Clone(head)
	return 0
}

// TestReplayAfterAWrap records an operation, has 2^32 slots go by, and sends the recorded datagrams before the true
// ones of the operation that has the same numbers now, to the switch or to the ranks. All sums are right. Without a
// count of the wraps they are wrong, which shows that the replay would work.
func TestReplayAfterAWrap(t *testing.T) {
	for _, kind := range []seal.Kind{seal.Tags, seal.Encryption} {
		for name, c := range map[string]struct{ up, counted bool }{
			"to the node": {true, true}, "to the ranks": {false, true}, "to the node, not counted": {true, false},
			"to the ranks, not counted": {false, false},
		} {
			t.Run(fmt.Sprint(name, ", ", kind), func(t *testing.T) { replayAfterAWrap(t, kind, c.up, c.counted) })
		}
	}
}

func replayAfterAWrap(t *testing.T, kind seal.Kind, up, counted bool) {
	t.Helper()
	w := newWrapped(t, kind)
	members, _, end := w.begin(t)
	o := collective.Op{Count: 5000, Type: reduce.F32, Reduction: reduce.Sum} // 20 slots a shard
	reduceScatter(t, 1, members, o)
	end() // it has the same seals as the next
	recorded := [][][]byte{w.spies[0].recorded(up), w.spies[1].recorded(up)}
	if counted {
		w.wrap(t)
	} else { // only what changes sums, or there would be no end
		for r := range recorded {
			recorded[r] = slices.DeleteFunc(recorded[r], func(b []byte) bool {
				var h wire.Slot
				return h.Get(b) != nil || h.Kind != wire.Contribution && h.Kind != wire.Result
			})
		}
	}
	members, node, _ := w.begin(t)
	sends, recvs := inputs(2, 2, o), [][][]byte{{make([]byte, 4*o.Count)}, {make([]byte, 4*o.Count)}}
	if !up { // the ranks wait for it
		for r, m := range members {
			m.Post(o, sends[r][0], recvs[r][0])
		}
	}
	sent := uint64(0)
	for r, m := range w.spies {
		require.NotEmpty(t, recorded[r])
		to := m.toMember
		if up {
			to = m.toNode
		}
		for _, b := range recorded[r] {
			_, err := to.Write(b)
			require.NoError(t, err)
			sent += uint64(len(b))
		}
	}
	if up { // before the ranks have sent anything
		systest.Eventually(t, func() bool { return node.counted.Load().BytesIn >= sent })
		for r, m := range members {
			m.Post(o, sends[r][0], recvs[r][0])
		}
	}
	done := func() bool { return members[0].Done() && members[1].Done() }
	if !counted && !up { // ranks that hold results which the switch has not sent find no end
		done = func() bool {
			return members[0].Stats().ReceivedBytes >= lengths(recorded[0]) &&
				members[1].Stats().ReceivedBytes >= lengths(recorded[1])
		}
	}
	taken := func(r int) bool { return !bytes.Equal(make([]byte, 64), recvs[r][0][:64]) }
	stalls := time.Now().Add(5 * time.Second)
	for end := systest.Deadline(); !done(); {
		if !counted && taken(0) && taken(1) && time.Now().After(stalls) {
			break // what was taken stalls it for ever
		}
		require.True(t, time.Now().Before(end))
		for _, m := range members {
			require.NoError(t, m.Work(t.Context()))
		}
	}
	err := checkSums(sends, recvs, o)
	if !counted {
		require.Error(t, err)
		for r := range recvs {
			require.True(t, taken(r), "what was recorded is taken")
		}
		return
	}
	require.NoError(t, err)
	if up {
		systest.Eventually(t, func() bool { return node.counted.Load().BadTags >= uint64(len(recorded[0])+len(recorded[1])) })
	} else {
		for r, m := range members {
			require.GreaterOrEqual(t, m.Stats().Refused, uint64(len(recorded[r])))
		}
	}
}

func lengths(all [][]byte) (sum uint64) {
	for _, b := range all {
		sum += uint64(len(b))
	}
	return sum
}
