package multicast

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// What the protocol keeps is bounded by the largest operation, not by how many there have been: a
// thousandth of its result and a MiB.

// held returns how many bytes of the heap are in use.
func held() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestMemoryOfManyLargeOperations(t *testing.T) {
	for _, of := range []struct{ chunk, bytes int }{{1440, 64 << 20}, {8928, 256 << 20}} {
		before := held()
		c := New(Config{Size: 1, Chunk: of.chunk, Chains: 1, Subgroups: 1})
		for range 10_000 {
			_, err := c.Post(0, Op{Collective: wire.Allgather, Bytes: of.bytes})
			require.NoError(t, err)
			_, ok := c.NextDone()
			require.True(t, ok)
		}
		require.Less(t, held()-before, of.bytes/1000+1<<20, "chunks of %d bytes", of.chunk)
		runtime.KeepAlive(c)
	}
}

// The same where every chunk is lost and asked for by the right neighbour as well, with two
// operations in flight.
func TestMemoryOfLostOperations(t *testing.T) {
	const size, ops = 16 << 20, 20
	cfg := plain(3, 1440)
	cfg.Rank = 1
	before := held()
	c := New(cfg)
	o := Op{Collective: wire.Broadcast, Bytes: size}
	post := func() {
		seq, err := c.Post(c.now, o)
		require.NoError(t, err)
		for k := range c.topo.Rounds() {
			c.Control(c.now, c.topo.From(k),
				&wire.Control{Kind: wire.Ready, Round: uint8(k), Seq: seq, Collective: o.Collective, Bytes: size})
		}
	}
	post()
	settled := 0
	for seq := range uint32(ops) {
		post()
		chunks := uint32(c.ops.at(seq).chunks)
		c.Control(c.now, 2, &wire.Control{Kind: wire.Fetch, Seq: seq, Collective: o.Collective, Bytes: size, Count: chunks})
		at, ok := c.Deadline()
		require.True(t, ok)
		c.Expire(at)
		for psn := range chunks {
			h := wire.Data{Collective: o.Collective, Seq: seq, PSN: psn, Bytes: size}
			_, ok := c.Place(c.now, &h, min(cfg.Chunk, size-int(psn)*cfg.Chunk))
			require.True(t, ok)
			c.Received(c.now, &h)
			r, ok := c.NextRepair()
			require.True(t, ok)
			c.Repaired(&r)
		}
		c.Control(c.now, 2, &wire.Control{Kind: wire.Done, Seq: seq})
		d, ok := c.NextDone()
		require.True(t, ok)
		require.Equal(t, seq, d.Seq)
		for _, ok := c.NextControl(); ok; _, ok = c.NextControl() {
			c.PopControl()
		}
		if seq == 4 {
			settled = held() - before
			require.Less(t, settled, size/1000+1<<20)
		}
	}
	require.Less(t, held()-before, settled+16<<10, "it does not grow")
	runtime.KeepAlive(c)
}
