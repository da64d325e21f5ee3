package multicast

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestExpectFrom: a header of a chunk tells where this chunk and the chunks behind it belong, up to one that has
// arrived.
func TestExpectFrom(t *testing.T) {
	const chunk, chunks = 16, 10
	cfg := small(3, chunk)
	cfg.Eager, cfg.Arena = 0, 0
	n := newNet(cfg)
	c := n.comms[2]
	o := Op{Collective: wire.Allgather, Bytes: chunk*(chunks-1) + 5}
	head := func(root uint16, psn uint32) *wire.Data {
		return &wire.Data{Collective: wire.Allgather, Job: job, Root: root, PSN: psn, Bytes: uint32(o.Bytes)}
	}
	_, ok := c.Expect(head(1, 0))
	require.False(t, ok, "it is not posted")
	require.NoError(t, n.post(o, n.all()...))

	e, ok := c.Expect(head(1, 4))
	require.True(t, ok)
	assert.Equal(t, Expected{Root: 1, PSN: 4, Count: 6, Offset: o.Bytes + 4*chunk, Bytes: o.Bytes - 4*chunk}, e)

	h := head(1, 7)
	_, ok = c.Place(n.now, h, chunk)
	require.True(t, ok)
	c.Received(n.now, h)
	e, ok = c.Expect(head(1, 4))
	require.True(t, ok)
	assert.Equal(t, Expected{Root: 1, PSN: 4, Count: 3, Offset: o.Bytes + 4*chunk, Bytes: 3 * chunk}, e)
	e, ok = c.Expect(head(1, 8))
	require.True(t, ok)
	assert.Equal(t, Expected{Root: 1, PSN: 8, Count: 2, Offset: o.Bytes + 8*chunk, Bytes: chunk + 5}, e)

	later := head(1, 0)
	later.Seq = 1
	for what, h := range map[string]*wire.Data{
		"has arrived": h, "is the own shard's": head(2, 0), "is behind the shard": head(1, chunks),
		"is of no rank":           head(3, 0),
		"is of a later operation": later,
	} {
		_, ok = c.Expect(h)
		assert.False(t, ok, "it %s", what)
	}
	n.run()
	require.True(t, n.done())
}

// TestExpectNothingInAnArena: an eager chunk is copied from an arena anyway.
func TestExpectNothingInAnArena(t *testing.T) {
	n := newNet(small(3, 1024))
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 64}, n.all()...))
	_, ok := n.comms[2].Expect(&wire.Data{Collective: wire.Allgather, Job: job, Root: 1, Bytes: 64})
	require.False(t, ok)
}
