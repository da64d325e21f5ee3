package batch

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inboxPair returns an inbox and two sockets: datagrams sent on from arrive at to.
func inboxPair(t *testing.T, payload int) (in *Inbox, from, to int) {
	t.Helper()
	in, err := NewInbox(head, payload, new(atomic.Uint64))
	require.NoError(t, err)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, in.Close(), "twice does nothing")
		require.NoError(t, unix.Close(pair[0]))
		require.NoError(t, unix.Close(pair[1]))
	})
	return in, pair[0], pair[1]
}

// numbered is a datagram of a header and n bytes that no other one holds.
func numbered(i, n int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, head+n) }

// Where nothing is merged, each message has a place of its own, as far as they go.
func TestPlacesOfABatch(t *testing.T) {
	const each = 100
	in, from, to := inboxPair(t, each)
	sizes := []int{each, 40, each + 1, 30, 31, each, 0}
	for i, n := range sizes {
		require.NoError(t, unix.Send(from, numbered(i, n), 0))
	}
	expected := make([]byte, 4*each+30) // the last place is short
	require.Zero(t, in.Receive(to, Kernel{Batch: true}, expected, each, Max))
	places := []int{0, 1, -1, 3, -1, -1, -1}
	for i, n := range sizes {
		var d Datagram
		require.True(t, in.Next(&d))
		require.Equal(t, places[i], d.Place, i)
		require.Equal(t, numbered(i, n), append(append([]byte{}, d.Head...), d.Payload...))
		if d.Place >= 0 {
			require.Same(t, &expected[d.Place*each], &d.Payload[0])
			in.Aside(&d)
			require.Equal(t, numbered(i, n)[head:], d.Payload)
			require.NotSame(t, &expected[i*each], &d.Payload[0])
		}
	}
	require.False(t, in.Next(&Datagram{}))
	require.Equal(t, unix.EAGAIN, in.Receive(to, Kernel{Batch: true}, nil, 0, Max))
	require.False(t, in.Next(&Datagram{}), "nothing came")
}

// Of datagrams so long that the staging memory of a message has one gap, each message still has a place.
func TestPlacesOfLongDatagrams(t *testing.T) {
	const each = 60000
	in, from, to := inboxPair(t, each)
	for i := range 3 {
		require.NoError(t, unix.Send(from, numbered(i, each), 0))
	}
	expected := make([]byte, 3*each)
	require.Zero(t, in.Receive(to, Kernel{Batch: true}, expected, each, Max))
	for i := range 3 {
		var d Datagram
		require.True(t, in.Next(&d))
		require.Equal(t, i, d.Place)
		require.Equal(t, numbered(i, each)[head:], expected[i*each:][:each])
	}
}

// What the kernel says about merging is believed only where that leaves datagrams of some length: of
// length 0 there would be no end of them.
func TestMergedOfNothing(t *testing.T) {
	in, from, to := inboxPair(t, 100)
	b := numbered(1, 100)
	for _, size := range []uint32{0, 1 << 31, 1<<32 - 1} {
		require.NoError(t, unix.Send(from, b, 0))
		require.Zero(t, in.Receive(to, Kernel{Merge: true}, nil, 0, 1))
		in.merged(size)
		var d Datagram
		require.True(t, in.Next(&d))
		require.Equal(t, b, append(append([]byte{}, d.Head...), d.Payload...))
		require.False(t, in.Next(&d))
	}
}

// A call takes as many messages as it may, and no more than fit the caches.
func TestMost(t *testing.T) {
	for _, c := range []struct {
		use            Kernel
		payload, most  int
		want, messages int
	}{
		{Kernel{Batch: true}, 100, 5, 5, 10},
		{Kernel{Batch: true}, 100, 1000, 10, 10},
		{Kernel{Batch: true}, 100, 0, 1, 10},
		{Kernel{Batch: true}, 200 << 10, 64, 2, 10},
		{Kernel{Batch: true, Merge: true}, 100, 64, 7, 10},
		{Kernel{}, 100, 64, 1, 10},
	} {
		in, from, to := inboxPair(t, c.payload)
		for i := range c.messages {
			require.NoError(t, unix.Send(from, numbered(i, 10), 0))
		}
		require.Zero(t, in.Receive(to, c.use, nil, 0, c.most))
		got := 0
		for in.Next(&Datagram{}) {
			got++
		}
		require.Equal(t, c.want, got, "%+v", c)
	}
}

// A header can be looked at before its datagram is received.
func TestPeek(t *testing.T) {
	in, from, to := inboxPair(t, 100)
	_, e := in.Peek(to)
	require.Equal(t, unix.EAGAIN, e)
	for i, n := range []int{100, 10 - head} {
		require.NoError(t, unix.Send(from, numbered(i, n), 0))
		for range 2 {
			b, e := in.Peek(to)
			require.Zero(t, e)
			require.Equal(t, numbered(i, n)[:min(head, head+n)], b)
		}
		require.Zero(t, in.Receive(to, Kernel{}, nil, 0, 1))
		require.Equal(t, head+n, in.Longest())
		var d Datagram
		require.True(t, in.Next(&d))
		require.Equal(t, numbered(i, n), append(append([]byte{}, d.Head...), d.Payload...))
	}
	_, e = in.Peek(to)
	require.Equal(t, unix.EAGAIN, e)
}
