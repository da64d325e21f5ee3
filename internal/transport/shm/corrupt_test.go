package shm

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestCorruptRing has rank 0 write nonsense into its ring. Rank 1 must notice,
// name it, and go on with rank 2.
func TestCorruptRing(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(o *ownRing)
		want   string
	}{
		{"head too far", func(o *ownRing) { o.head.Store(5) },
			"it has published 5 chunks in a ring of 3 that is read up to 1"},
		{"head far away", func(o *ownRing) { o.head.Store(math.MaxUint64) }, "it has published 18446744073709551615 chunks"},
		{"head behind", func(o *ownRing) { o.head.Store(0) },
			"it has published 0 chunks in a ring of 3 that is read up to 1"},
		{"length", func(o *ownRing) {
			binary.LittleEndian.PutUint32(o.slots.slot(1)[wire.DataSize:], 101)
			o.head.Store(2)
		}, "its ring: chunk 1: 101 bytes, allowed are 0 to 100"},
		{"length beyond int32", func(o *ownRing) {
			binary.LittleEndian.PutUint32(o.slots.slot(1)[wire.DataSize:], math.MaxUint32)
			o.head.Store(2)
		}, "its ring: chunk 1: 4294967295 bytes, allowed are 0 to 100"},
		{"header", func(o *ownRing) {
			o.slots.slot(1)[0] = 0
			o.head.Store(2)
		}, wire.ErrMagic.Error()},
		{"root", func(o *ownRing) {
			o.slots.put(1, &wire.Data{Collective: wire.Allgather, Root: 2, Seq: 1}, nil)
			o.head.Store(2)
		}, "its ring: chunk 1 is of another root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := regions(t, small(3))
			p := newProbe(w[1])
			p.seq, p.shard, p.out, p.left = 1, 0, []byte{}, 100
			require.Equal(t, 1, sender(w[0], 1, nil, 0))
			require.Equal(t, 1, polled(p.g, p, 10))
			w[0].Gather().own.slots.put(1, &wire.Data{Collective: wire.Allgather, Seq: 1}, nil)
			c.damage(&w[0].Gather().own)
			require.Equal(t, 1, sender(w[2], 1, nil, 0))
			require.Equal(t, 1, polled(p.g, p, 10), "rank 2's chunk")
			assert.ErrorContains(t, p.broken[0], c.want)
			delete(p.broken, 0)
			p.g.Poll(p, 10)
			assert.Empty(t, p.broken, "told once")
			assert.False(t, p.g.ready())
		})
	}
}

func TestCorruptTail(t *testing.T) {
	for _, tail := range []uint64{4, math.MaxUint64} {
		w := regions(t, small(3))
		w[1].Gather().rings[0].tail.Store(tail)
		p := newProbe(w[0])
		require.Equal(t, 3, sender(w[0], 1, make([]byte, 400), 0))
		require.Equal(t, 0, sender(w[0], 1, make([]byte, 400), 3), "rank 2 still counts")
		p.g.Poll(p, 1)
		assert.ErrorContains(t, p.broken[1], "of a ring that holds 0 to 3")
		assert.Len(t, p.broken, 1)
	}
}

func TestCorruptMailbox(t *testing.T) {
	w := regions(t, small(4))
	q := newProbe(w[3])
	box := func(from int) *outBox { return &w[from].Gather().posts.out[3] }
	box(0).head.Store(entries + 1)
	clear(box(1).entry(0))
	box(1).head.Store(1)
	require.True(t, w[2].Gather().Control(3, &wire.Control{Kind: wire.Done}, nil))
	require.Equal(t, 1, polled(q.g, q, 10))
	assert.ErrorContains(t, q.broken[0], "it has put 65 messages into a mailbox of 64 that is read up to 0")
	assert.ErrorIs(t, q.broken[1], wire.ErrVersion)
	assert.Len(t, q.broken, 2)

	p := newProbe(w[2])
	box(2).tail.Store(1000)
	for range 2 * entries {
		require.True(t, p.g.Control(3, &wire.Control{Kind: wire.Done}, nil))
	}
	require.EqualValues(t, entries, box(2).at, "the rest was thrown away")
	p.g.Poll(p, 1)
	assert.ErrorContains(t, p.broken[3], "was read up to 1000")
}

func TestCorruptStreams(t *testing.T) {
	w := regions(t, small(3))
	s := w[0].Streams()
	w[1].Streams().out[0].head.Store(page + 1)
	w[2].Streams().in[0].tail.Store(1)
	assert.Empty(t, s.Peek(1, 10))
	assert.ErrorContains(t, s.Err(1), "it has sent 4097 bytes into a stream of 4096 that is read up to 0")
	assert.Zero(t, s.Send(1, []byte{1}), "a broken rank is broken both ways")
	require.Equal(t, page, s.Send(2, make([]byte, page)))
	w[2].Streams().in[0].tail.Store(page + 1)
	assert.Zero(t, s.Send(2, []byte{1}))
	assert.ErrorContains(t, s.Err(2), "it has read 4097 bytes of a stream that holds 0 to 4096")
	assert.Empty(t, s.Peek(2, 10))
	assert.NoError(t, s.Err(0))
}
