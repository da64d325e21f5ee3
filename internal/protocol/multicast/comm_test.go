package multicast

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// plain is a configuration with barriers for every operation that has bytes.
func plain(ranks, chunk int) Config {
	return Config{Size: ranks, Chunk: chunk, Chains: 1, Subgroups: 1, Cutoff: time.Millisecond}
}

// small is one in which everything up to 64 KiB is eager.
func small(ranks, chunk int) Config {
	c := plain(ranks, chunk)
	c.Eager, c.Arena, c.EagerChunks = 64<<10, 256<<10, 1024
	return c
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no ranks":       func(c *Config) { c.Size = 0 },
		"rank too low":   func(c *Config) { c.Rank = -1 },
		"rank too high":  func(c *Config) { c.Rank = c.Size },
		"too many":       func(c *Config) { c.Size = 1<<16 + 1 },
		"chunk":          func(c *Config) { c.Chunk = 0 },
		"chains":         func(c *Config) { c.Chains = 0 },
		"subgroups":      func(c *Config) { c.Subgroups = 0 },
		"too many trees": func(c *Config) { c.Subgroups = 257 },
		"window":         func(c *Config) { c.Window = -1 },
		"arena":          func(c *Config) { c.Arena = c.Eager - 1 },
	} {
		cfg := small(2, 4)
		assert.NotPanics(t, func() { New(cfg) })
		change(&cfg)
		assert.Panics(t, func() { New(cfg) }, name)
	}
}

func TestPostRefuses(t *testing.T) {
	c := New(plain(3, 1024))
	for _, o := range []struct {
		op   Op
		want string
	}{
		{Op{Collective: 0}, "unknown collective 0"},
		{Op{Collective: wire.Allgather + 1}, "unknown collective 4"},
		{Op{Collective: wire.Broadcast, Root: 3}, "root 3 is not a rank; ranks are 0 to 2"},
		{Op{Collective: wire.Broadcast, Root: -1}, "root -1 is not a rank; ranks are 0 to 2"},
		{Op{Collective: wire.Allgather, Bytes: 8, Stride: 7}, "stride of 7 bytes; it must be 0 or at least the 8 of a shard"},
		{Op{Collective: wire.Allgather, Bytes: 8, Stride: -1}, "stride of -1 bytes"},
		{Op{Collective: wire.Allgather, Bytes: 8, Slots: []int{0, 1}}, "slots of 2 ranks; there are 3"},
		{Op{Collective: wire.Allgather, Bytes: 8, Slots: []int{}}, "slots of 0 ranks; there are 3"},
		{Op{Collective: wire.Allgather, Bytes: 8, Slots: []int{2, 0, 2}},
			"slots [2 0 2]; each must be at least 0, and no other rank's"},
		{Op{Collective: wire.Allgather, Bytes: 8, Slots: []int{0, -1, 2}}, "slots [0 -1 2]"},
		{Op{Collective: wire.Allgather, Bytes: -1}, "size of -1 bytes; it must be at least 0"},
		{Op{Collective: wire.Allgather, Bytes: math.MaxInt}, "it must be below"},
		{Op{Collective: wire.Allgather, Bytes: 1 << 40}, "it must be below"},
	} {
		_, err := c.Post(0, o.op)
		require.ErrorContains(t, err, o.want)
	}
	assert.Zero(t, c.InFlight())
	assert.Zero(t, c.Posted(), "a refused operation takes no number")
}

// TestBusy also shows that Room counts numbers: one operation that is late
// holds up those after it, though they are done.
func TestBusy(t *testing.T) {
	n := newNet(small(2, 1024))
	n.lose = func(p packet) bool { return p.data.Seq == 0 }
	allgather := Op{Collective: wire.Allgather, Bytes: 4}
	for range collective.MaxInFlight {
		require.NoError(t, n.post(allgather, 0))
	}
	require.ErrorIs(t, n.post(allgather, 0), ErrBusy)
	assert.Equal(t, collective.MaxInFlight, n.comms[0].InFlight())
	for range collective.MaxInFlight {
		require.NoError(t, n.post(allgather, 1))
	}
	way := n.way
	n.way = nil
	for _, p := range way {
		if p.to == 0 && p.data != nil {
			n.deliver(p)
		}
	}
	assert.Equal(t, 1, n.comms[0].InFlight(), "all but the first are done")
	require.ErrorIs(t, n.post(allgather, 0), ErrBusy)
	n.way = append(way, n.way...)
	n.run()
	n.lose = nil
	n.tick(50 * time.Millisecond)
	require.True(t, n.done(), n.log.String())
	assert.Equal(t, collective.MaxInFlight, n.comms[0].Room())
	require.NoError(t, n.post(allgather, 0, 1))
}

func TestFail(t *testing.T) {
	n := newNet(small(3, 16))
	o := Op{Collective: wire.Allgather, Bytes: 32}
	require.NoError(t, n.post(o, 0))
	require.NoError(t, n.post(o, 0))
	why, other := errors.New("rank 2 is gone"), errors.New("too late")
	c := n.comms[0]
	c.Fail(why)
	c.Fail(other)
	for seq := range uint32(2) {
		d, ok := c.NextDone()
		require.True(t, ok)
		assert.Equal(t, seq, d.Seq)
		require.ErrorIs(t, d.Err, why)
	}
	_, ok := c.NextDone()
	assert.False(t, ok)
	_, err := c.Post(0, o)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, c.Err(), why)
	assert.Zero(t, c.InFlight())
	ok = c.NextRun(new(Run))
	assert.False(t, ok)
	_, ok = c.NextControl()
	assert.False(t, ok)
	_, ok = c.NextRepair()
	assert.False(t, ok)
	_, ok = c.Deadline()
	assert.False(t, ok)
	_, ok = c.Expect(nil)
	assert.False(t, ok)
	h := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, Bytes: 32}
	_, ok = c.Place(0, &h, 16)
	assert.False(t, ok)
	assert.False(t, c.Hold(&h))
}

// TestOneRank needs nobody.
func TestOneRank(t *testing.T) {
	for _, lossless := range []bool{false, true} {
		cfg := small(1, 16)
		cfg.Lossless = lossless
		n := newNet(cfg)
		for _, coll := range []wire.Collective{wire.Barrier, wire.Broadcast, wire.Allgather} {
			for _, bytes := range []int{0, 5, 100_000} {
				require.NoError(t, n.post(Op{Collective: coll, Bytes: bytes, Sync: bytes == 5}, 0))
				n.run()
				require.True(t, n.done(), "%v of %d bytes", coll, bytes)
			}
		}
	}
}

// TestImpossibleMessages sends what no correct rank does: nothing happens, but
// for a count.
func TestImpossibleMessages(t *testing.T) {
	large := Op{Collective: wire.Allgather, Bytes: 10}
	ready := wire.Control{Kind: wire.Ready, Collective: wire.Allgather, Bytes: 10}
	for name, c := range map[string]struct {
		from int
		m    wire.Control
	}{
		"ready from the wrong rank": {1, ready},
		"ready of no round": {3,
			wire.Control{Kind: wire.Ready, Round: 200, Collective: wire.Allgather, Bytes: 10}},
		"done from the left":           {3, wire.Control{Kind: wire.Done}},
		"done of an operation to come": {1, wire.Control{Kind: wire.Done, Seq: 7}},
		"activate from the right":      {1, wire.Control{Kind: wire.Activate}},
		"credit from no child":         {3, wire.Control{Kind: wire.Credit, Root: 2, PSN: 1}},
		"credit for no root":           {1, wire.Control{Kind: wire.Credit, Root: 9, PSN: 1}},
		"credit beyond the shard":      {1, wire.Control{Kind: wire.Credit, Root: 0, PSN: 4}},
		"fetch from the left":          {3, wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Bytes: 10, Count: 1}},
		"fetch of no root": {1,
			wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Bytes: 10, Root: 9, Count: 1}},
		"fetch beyond the shard": {1,
			wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Bytes: 10, PSN: 2, Count: 2}},
		"fetch that wraps": {1,
			wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Bytes: 10, PSN: math.MaxUint32, Count: 2}},
		"repair": {3, wire.Control{Kind: wire.Repair}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plain(4, 4)
			cfg.Window = 2
			n := newNet(cfg)
			require.NoError(t, n.post(large, 0))
			n.comms[0].Control(0, c.from, &c.m)
			assert.EqualValues(t, 1, n.comms[0].Stats().Dropped)
			require.NoError(t, n.comms[0].Err())
			ok := n.comms[0].NextRun(new(Run))
			assert.False(t, ok)
			_, ok = n.comms[0].NextRepair()
			assert.False(t, ok)
			require.NoError(t, n.post(large, 1, 2, 3))
			n.run()
			require.True(t, n.done(), n.log.String())
		})
	}
}

// TestImpossibleChunks offers datagrams that must not be placed.
func TestImpossibleChunks(t *testing.T) {
	good := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, PSN: 1, Bytes: 10, Arena: 0}
	for name, c := range map[string]struct {
		change func(*wire.Data)
		size   int
	}{
		"own rank":           {func(h *wire.Data) { h.Root = 0 }, 4},
		"no rank":            {func(h *wire.Data) { h.Root = 3 }, 4},
		"beyond the shard":   {func(h *wire.Data) { h.PSN = 3 }, 4},
		"far beyond":         {func(h *wire.Data) { h.PSN = math.MaxUint32 }, 4},
		"too short":          {func(*wire.Data) {}, 3},
		"too long":           {func(*wire.Data) {}, 5},
		"long last chunk":    {func(h *wire.Data) { h.PSN = 2 }, 4},
		"stale":              {func(h *wire.Data) { h.Seq = math.MaxUint32 }, 4},
		"far ahead":          {func(h *wire.Data) { h.Seq = maxKnown }, 4},
		"early, not eager":   {func(h *wire.Data) { h.Seq, h.Arena = 5, NotEager }, 4},
		"early, unaligned":   {func(h *wire.Data) { h.Seq, h.Arena = 5, 32 }, 4},
		"early, outside":     {func(h *wire.Data) { h.Seq, h.Arena = 5, 256<<10 }, 4},
		"early, partly":      {func(h *wire.Data) { h.Seq, h.Arena, h.Bytes = 5, 256<<10-64, 60 }, 4},
		"early, too large":   {func(h *wire.Data) { h.Seq, h.Bytes = 5, 64<<10 }, 4},
		"early, huge":        {func(h *wire.Data) { h.Seq, h.Bytes = 5, math.MaxUint32 }, 4},
		"early, many chunks": {func(h *wire.Data) { h.Seq, h.Bytes = 5, 20<<10 }, 4},
		"early repair":       {func(h *wire.Data) { h.Seq, h.Job = 5, 0 }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNet(small(3, 4))
			require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 10}, 0))
			h := good
			c.change(&h)
			_, ok := n.comms[0].Place(0, &h, c.size)
			assert.False(t, ok)
			assert.EqualValues(t, 1, n.comms[0].Stats().Dropped)
			require.NoError(t, n.comms[0].Err())
			_, ok = n.comms[0].Place(0, &good, 4)
			assert.True(t, ok, "the good one still goes")
		})
	}
}

// TestPlaceOnce: a chunk is placed until it is received, and never again.
func TestPlaceOnce(t *testing.T) {
	n := newNet(small(2, 4))
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 10}, 0))
	h := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, PSN: 2, Bytes: 10}
	for range 2 {
		pl, ok := n.comms[0].Place(0, &h, 2)
		require.True(t, ok)
		assert.Equal(t, Place{Seq: 0, Offset: 18, Arena: true}, pl)
	}
	n.comms[0].Received(0, &h)
	n.comms[0].Received(0, &h)
	assert.EqualValues(t, 1, n.comms[0].ops.at(0).receiver.seen[1].count, "the second does not count")
	_, ok := n.comms[0].Place(0, &h, 2)
	assert.False(t, ok)
}

// TestReleaseForgetsWishes: what the right neighbour asked for and never got
// sent is no repair any more once a barrier shows that it has it.
func TestReleaseForgetsWishes(t *testing.T) {
	n := newNet(small(2, 1024))
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 8}, 0, 1))
	n.run()
	c := n.comms[0]
	c.Control(0, 1, &wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Count: 1, Bytes: 8})
	require.Equal(t, 1, c.backlog.chunks)
	require.NoError(t, n.post(Op{Collective: wire.Barrier, Sync: true}, 0, 1))
	n.way = nil // the repair was taken when rank 0 was driven; ask again, and do not drive
	c.Control(0, 1, &wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Count: 1, Bytes: 8})
	require.Equal(t, 1, c.backlog.chunks)
	c.Control(0, 1, &wire.Control{Kind: wire.Ready, Seq: 1, Collective: wire.Barrier})
	require.Zero(t, c.backlog.chunks)
	_, ok := c.NextRepair()
	require.False(t, ok)
}

// TestNumbersWrap runs past the largest operation number.
func TestNumbersWrap(t *testing.T) {
	cfg := small(3, 1024)
	cfg.First = math.MaxUint32 - 99
	n := newNet(cfg)
	for i := range 300 {
		o := Op{Collective: wire.Allgather, Bytes: 8}
		if i%40 == 7 {
			o.Bytes = 100_000
		}
		require.NoError(t, n.post(o, 0, 1, 2))
		n.run()
		require.True(t, n.done(), "operation %d", i)
	}
	assert.EqualValues(t, 200, n.comms[0].Posted())
	assert.EqualValues(t, 300, n.comms[0].Stats().Done)
}

// TestGapsAreNotedOnce: each later operation shows the same loss again.
func TestGapsAreNotedOnce(t *testing.T) {
	cfg := small(2, 1024)
	cfg.Reorder = time.Second
	n := newNet(cfg)
	n.lose = func(p packet) bool { return p.data.Seq == 0 && p.to == 0 }
	for range 20 {
		require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 8}, 0, 1))
	}
	n.run()
	assert.Equal(t, []gap{{chunkRange{1, 0, 1}, time.Second}}, n.comms[0].ops.at(0).loss.gaps)
}

// TestBarrierWaitsForOldWindows: what two large operations have under way must
// fit a queue, so the barrier of a third waits until the first is received.
func TestBarrierWaitsForOldWindows(t *testing.T) {
	c := New(Config{Rank: 0, Size: 2, Chunk: 100, Window: 4, Chains: 1, Subgroups: 1, Arena: 64, Cutoff: 1})
	for range 3 {
		_, err := c.Post(0, Op{Collective: wire.Allgather, Bytes: 150})
		require.NoError(t, err)
	}
	entered := func() (seqs []uint32) {
		for {
			m, ok := c.NextControl()
			if !ok {
				return seqs
			}
			c.PopControl()
			if m.Kind == wire.Ready {
				seqs = append(seqs, m.Seq)
			}
		}
	}
	require.Equal(t, []uint32{0, 1}, entered())
	for psn := range uint32(2) {
		h := wire.Data{Collective: wire.Allgather, Job: 1, Root: 1, PSN: psn, Bytes: 150, Arena: NotEager}
		_, ok := c.Place(0, &h, 100-50*int(psn))
		require.True(t, ok)
		require.Empty(t, entered())
		c.Received(0, &h)
	}
	require.Equal(t, []uint32{2}, entered())
}

// A spurious request widens how long a gap may stay open: once for all chunks that show the same spurious request, and
// no further than the bound.
func TestReorderWidens(t *testing.T) {
	p := pace{reorder: 50 * time.Microsecond}
	now := time.Millisecond
	for range 100 {
		p.reordered(now)
	}
	assert.Equal(t, 100*time.Microsecond, p.reorder)
	for i := range 50 {
		p.reordered(now + Time(i)*10*time.Millisecond)
	}
	assert.Equal(t, maxReorder, p.reorder)
	fixed := pace{}
	fixed.reordered(now)
	assert.Zero(t, fixed.reorder, "0 is a fabric that keeps order")
}

// Gaps that have closed do not fill the list: then later ones would be asked
// for at once.
func TestClosedGapsAreStruckOff(t *testing.T) {
	c := New(Config{Rank: 1, Size: 2, Chunk: 1, Chains: 1, Subgroups: 1, Arena: 1 << 20, Eager: 1 << 20,
		EagerChunks: 1 << 20,
		Cutoff:      time.Second, Reorder: time.Second})
	_, err := c.Post(0, Op{Collective: wire.Broadcast, Bytes: 10_000})
	require.NoError(t, err)
	take := func(psn int) {
		h := wire.Data{Job: 1, Collective: wire.Broadcast, Bytes: 10_000, PSN: uint32(psn)}
		_, ok := c.Place(1, &h, 1)
		require.True(t, ok)
		c.Received(1, &h)
	}
	for psn := 0; psn+1 < 10_000; psn += 2 { // each pair in the wrong order
		take(psn + 1)
		take(psn)
	}
	_, asked := c.NextControl()
	assert.False(t, asked)
	assert.Zero(t, c.Stats().Lost)
}

// Guesses after a silence say nothing about how far chunks overtake each other.
func TestGuessesDoNotWiden(t *testing.T) {
	for _, silence := range []bool{false, true} {
		c := New(Config{Rank: 1, Size: 2, Chunk: 1, Chains: 1, Subgroups: 1, Arena: 64, Eager: 64, EagerChunks: 64,
			Cutoff: time.Millisecond, Reorder: 50 * time.Microsecond})
		_, err := c.Post(0, Op{Collective: wire.Broadcast, Bytes: 5})
		require.NoError(t, err)
		take := func(now Time, psn uint32) {
			h := wire.Data{Job: 1, Collective: wire.Broadcast, Bytes: 5, PSN: psn}
			_, ok := c.Place(now, &h, 1)
			require.True(t, ok)
			c.Received(now, &h)
		}
		now := time.Microsecond
		take(now, 1)                     // chunk 0 is late
		take(now+10*time.Microsecond, 3) // and chunk 2
		if silence {
			now += time.Second
		} else {
			now += 50 * time.Microsecond
		}
		c.Expire(now)
		m, asked := c.NextControl()
		require.True(t, asked)
		require.Equal(t, wire.Fetch, m.Kind)
		take(now, 0)
		if silence {
			assert.Equal(t, 50*time.Microsecond, c.pace.reorder)
			continue
		}
		assert.Equal(t, 100*time.Microsecond, c.pace.reorder)
		due, _ := c.Deadline()
		assert.Equal(t, 111*time.Microsecond, due, "what is open waits as long, too")
	}
}
