package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// end is one end of a connection in tests, with memory that its peer may write to and read.
type end struct {
	*Connection
	sends, receives *Completions
	memory          *Region
}

// pair returns two connected ends, on h1 and h2, that have posted so many empty buffers each.
func pair(t *testing.T, within time.Duration, buffers int) (e [2]*end) {
	d, _ := devices(t)
	for i := range e {
		e[i] = new(end)
		var err error
		for _, c := range []**Completions{&e[i].sends, &e[i].receives} {
			*c, err = d[i].NewCompletions(64)
			require.NoError(t, err)
			t.Cleanup((*c).Close)
		}
		e[i].memory, err = d[i].Map(1<<16, RemoteWrite|PeerRead)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e[i].memory.Close()) })
		e[i].Connection,
			err = d[i].NewConnection(ConnectionOptions{Sends: e[i].sends, Receives: e[i].receives, Send: 16, Receive: 16})
		require.NoError(t, err)
		t.Cleanup(func() {
			if e[i].qp != nil {
				require.NoError(t, e[i].Close())
			}
		})
		for id := range buffers {
			require.NoError(t, e[i].Receive(uint64(100+id), 1))
		}
	}
	for i := range e {
		require.NoError(t, e[i].Connect(e[1-i].Address(), within, 0))
	}
	return e
}

// completed waits for so many completions.
func completed(t *testing.T, c *Completions, n int) []Completion {
	t.Helper()
	all := make([]Completion, n)
	for have := 0; have < n; {
		require.NoError(t, c.Arm())
		got, err := c.Poll(all[have:])
		require.NoError(t, err)
		if have += got; got > 0 || have == n {
			continue
		}
		require.True(t, readable(t, c.FD()), "%d of %d completions came", have, n)
	}
	return all
}

// TestConnection: writes and reads have their effects, in the order in which they were posted.
func TestConnection(t *testing.T) {
	e := pair(t, 10*time.Second, 2)
	copy(e[0].memory.Bytes, "some words")
	copy(e[1].memory.Bytes[50_000:], "of the peer")
	from, to := e[0].memory, e[1].memory
	transfer := func(id uint64, v Verb, at, bytes, there int) Transfer {
		return Transfer{
			ID: id, Verb: v, Local: from.Address(at), LocalKey: from.Key(), Bytes: uint32(bytes),
			Immediate: uint32(0xfedc0000 + id),
			Remote:    to.Address(there), RemoteKey: to.RemoteKey(),
		}
	}
	n, err := e[0].Post([]Transfer{
		transfer(1, Write, 0, 4, 10_000),
		transfer(2, WriteImmediate, 5, 5, 20_000),
		transfer(3, WriteImmediate, 0, 0, 0),
		transfer(4, Read, 30_000, 11, 50_000),
	})
	require.NoError(t, err)
	require.Equal(t, 4, n)
	for i, c := range completed(t, e[0].sends, 4) {
		require.Equal(t, Completion{ID: uint64(i + 1), Bytes: c.Bytes, Immediate: c.Immediate}, c)
	}
	require.Equal(t, []Completion{
		{ID: 100, Bytes: 5, Immediate: 0xfedc0002, received: 1},
		{ID: 101, Immediate: 0xfedc0003, received: 1},
	}, completed(t, e[1].receives, 2))
	require.Equal(t, "some", string(to.Bytes[10_000:][:4]))
	require.Equal(t, "words", string(to.Bytes[20_000:][:5]))
	require.Equal(t, "of the peer", string(from.Bytes[30_000:][:11]))
}

// TestConnectionWaits: what takes a buffer waits for one, and is not lost.
func TestConnectionWaits(t *testing.T) {
	e := pair(t, 10*time.Second, 0)
	_, err := e[0].Post([]Transfer{{ID: 1, Verb: WriteImmediate, Immediate: 7}})
	require.NoError(t, err)
	systest.Pause(20 * time.Millisecond) // it is refused, again and again
	n, err := e[0].sends.Poll(make([]Completion, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, e[1].Receive(2, 1))
	require.Equal(t, uint32(7), completed(t, e[1].receives, 1)[0].Immediate)
	require.Equal(t, OK, completed(t, e[0].sends, 1)[0].Status)
}

// TestConnectionFull: what the device has no room for is not posted.
func TestConnectionFull(t *testing.T) {
	e := pair(t, 10*time.Second, 0)
	most := make([]Transfer, 1000)
	for i := range most {
		most[i] = Transfer{ID: uint64(i), Verb: WriteImmediate}
	}
	n, err := e[0].Post(most)
	require.Error(t, err)
	require.GreaterOrEqual(t, n, 16)
	require.Less(t, n, 1000)
}

// TestConnectionFails: a peer that is gone, and memory that it has not given, end a connection, and the first
// completion says why.
func TestConnectionFails(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		e := pair(t, 500*time.Millisecond, 4)
		require.NoError(t, e[1].Close())
		_, err := e[0].Post([]Transfer{{ID: 1, Verb: WriteImmediate}, {ID: 2, Verb: WriteImmediate}})
		require.NoError(t, err)
		done := completed(t, e[0].sends, 2)
		require.Equal(t, NoAnswer, done[0].Status)
		require.Equal(t, Flushed, done[1].Status)
		for _, c := range completed(t, e[0].receives, 4) {
			require.Equal(t, Flushed, c.Status)
		}
		_, err = e[0].Post([]Transfer{{ID: 3, Verb: WriteImmediate}})
		require.NoError(t, err)
		require.Equal(t, Flushed, completed(t, e[0].sends, 1)[0].Status)
	})
	t.Run("not given", func(t *testing.T) {
		e := pair(t, 10*time.Second, 1)
		_, err := e[0].Post([]Transfer{{
			ID: 1, Verb: Write, Local: e[0].memory.Address(0), LocalKey: e[0].memory.Key(), Bytes: 8,
			Remote: e[1].memory.Address(0), RemoteKey: e[1].memory.RemoteKey() + 1<<20,
		}})
		require.NoError(t, err)
		require.Equal(t, "remote access error", completed(t, e[0].sends, 1)[0].Status.String())
	})
}

// TestConnectWrongly: an address that no device has is refused.
func TestConnectWrongly(t *testing.T) {
	d, _ := devices(t)
	c, err := d[0].NewCompletions(4)
	require.NoError(t, err)
	defer c.Close()
	q, err := d[0].NewConnection(ConnectionOptions{Sends: c, Receives: c, Send: 1, Receive: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Close()) }()
	for _, a := range []Address{{Number: 1 << 24, MTU: 1024}, {PSN: 1 << 24, MTU: 1024}, {MTU: 1000}, {}, {MTU: 8192}} {
		require.ErrorContains(t, q.Connect(a, time.Second, 0), "want 24 bits")
	}
}
