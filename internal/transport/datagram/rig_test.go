package datagram

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const head = 32 // bytes of a header, as without authentication

var offloads = []batch.Offload{batch.OffloadAuto, batch.OffloadGSO, batch.OffloadBatch, batch.OffloadSingle}

var loopbacks = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

func open(t testing.TB, o Options) *Socket {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// pair returns two sockets on this host that are connected to each other.
func pair(t testing.TB, o Options) (a, b *Socket) {
	t.Helper()
	if !o.Local.IsValid() {
		o.Local = loopbacks[0]
	}
	a, b = open(t, o), open(t, o)
	require.NoError(t, a.Connect(netip.AddrPortFrom(o.Local, b.Port())))
	require.NoError(t, b.Connect(netip.AddrPortFrom(o.Local, a.Port())))
	return a, b
}

func newBatch(t testing.TB, payload int) *Batch {
	t.Helper()
	b, err := NewBatch(head, payload)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// message is the header and the payload of datagram i, of size bytes each,
// without a byte that another one has at the same place.
func message(i, size int) (h, payload []byte) {
	h, payload = make([]byte, head), make([]byte, size)
	systest.NewPattern(i, head).Fill(h)
	binary.BigEndian.PutUint32(h, uint32(i))
	systest.NewPattern(i, size).Fill(payload)
	return h, payload
}

// add appends datagram i to a batch.
func add(t testing.TB, b *Batch, i, size int) {
	t.Helper()
	h, payload := message(i, size)
	to := b.Add(payload)
	require.Len(t, to, head)
	copy(to, h)
}

// checker is a Sink that compares every byte with what datagram i of sizes has to
// hold, by the number in the header. Others are counted as strange.
type checker struct {
	sizes   []int
	got     []int // numbers, in the order of arrival
	hint    []byte
	inHint  int
	strange int
	wrong   error
}

func (c *checker) Datagram(h, payload []byte) {
	if len(h) < head || int(binary.BigEndian.Uint32(h)) >= len(c.sizes) {
		c.strange++
		return
	}
	i := int(binary.BigEndian.Uint32(h))
	c.got = append(c.got, i)
	wantHead, want := message(i, c.sizes[i])
	if string(h) != string(wantHead) || string(payload) != string(want) {
		c.wrong = fmt.Errorf("datagram %d of %d bytes came as %d bytes with another content", i, len(want), len(payload))
	}
	if len(payload) > 0 && len(c.hint) > 0 && &payload[0] == &c.hint[0] {
		c.inHint++
	}
}

// receive takes queued datagrams until n have come in all, and then all that are left in the
// queue.
func (c *checker) receive(t testing.TB, b *Batch, s *Socket, n int) {
	t.Helper()
	for {
		before := len(c.got) + c.strange
		if before < n {
			await(t, s)
		}
		done, err := b.Receive(s, c.hint, 64, c)
		require.NoError(t, err)
		require.NoError(t, c.wrong)
		require.Equal(t, done, len(c.got)+c.strange-before)
		if done == 0 && before >= n {
			return
		}
	}
}

// await waits for a datagram or an error. Even on lo, a send may return before.
func await(t testing.TB, s *Socket) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.sender.FD), Events: unix.POLLIN}}, int(systest.Limit/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 1, n, "nothing comes")
		return
	}
}

// exchange sends datagrams of the given payload sizes, some at a time, and
// requires that all come, in order, with every byte. The sockets' buffers must hold one batch.
func exchange(t testing.TB, from, to *Socket, sizes []int, hint []byte) *checker {
	t.Helper()
	out, in := newBatch(t, 1440), newBatch(t, 1440)
	c := &checker{sizes: sizes, hint: hint}
	for next := 0; next < len(sizes); {
		full := false
		for i := next; i < len(sizes) && !full; i++ {
			h, payload := message(i, sizes[i])
			to := out.Add(payload)
			copy(to, h)
			full = to == nil
		}
		sent, err := out.Flush(from)
		require.NoError(t, err)
		require.Zero(t, out.Added())
		next += sent
		c.receive(t, in, to, next)
	}
	for i, got := range c.got {
		require.Equal(t, i, got)
	}
	require.Zero(t, c.strange)
	return c
}

// flood sends n datagrams of a size that nobody reads meanwhile.
func flood(t testing.TB, from *Socket, size, n int) {
	t.Helper()
	out := newBatch(t, size)
	for next := 0; next < n; {
		for i := next; i < min(n, next+8); i++ {
			add(t, out, i, size)
		}
		sent, err := out.Flush(from)
		require.NoError(t, err)
		next += sent
	}
}
