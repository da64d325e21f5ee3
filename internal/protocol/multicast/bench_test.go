package multicast

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// BenchmarkChunk measures what the protocol adds to a chunk of a large
// Allgather: Place and Received, and the credits that they lead to.
func BenchmarkChunk(b *testing.B) {
	cfg := plain(4, 1440)
	cfg.Window = 64
	chunks, at := 4096, 4096
	c := New(cfg)
	b.ReportAllocs()
	for b.Loop() {
		if at == chunks {
			b.StopTimer()
			at = 0
			c = openLarge(b, cfg, chunks*cfg.Chunk)
			b.StartTimer()
		}
		h := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, PSN: uint32(at), Bytes: uint32(chunks * cfg.Chunk)}
		if _, ok := c.Place(Time(at), &h, cfg.Chunk); !ok {
			b.Fatal("not placed")
		}
		c.Received(Time(at), &h)
		if _, ok := c.NextControl(); ok {
			c.PopControl()
		}
		at++
	}
}

// openLarge returns a communicator of rank 0 with a large Allgather past its barrier.
func openLarge(b testing.TB, cfg Config, bytes int) *Comm {
	c := New(cfg)
	if _, err := c.Post(0, Op{Collective: wire.Allgather, Bytes: bytes}); err != nil {
		b.Fatal(err)
	}
	for k := range c.topo.Rounds() {
		c.Control(0, c.topo.From(k),
			&wire.Control{Kind: wire.Ready, Round: uint8(k), Collective: wire.Allgather, Bytes: uint64(bytes)})
	}
	for {
		if _, ok := c.NextControl(); !ok {
			return c
		}
		c.PopControl()
	}
}

// BenchmarkSmall measures a whole small Allgather of 4 ranks, at one rank:
// post, one chunk out, three in, done.
func BenchmarkSmall(b *testing.B) {
	cfg := small(4, 1440)
	c, seq := New(cfg), uint32(0)
	oneSmall(b, c, &seq)
	b.ReportAllocs()
	for b.Loop() {
		oneSmall(b, c, &seq)
	}
}

func oneSmall(b testing.TB, c *Comm, seq *uint32) {
	now := Time(*seq)
	if _, err := c.Post(now, Op{Collective: wire.Allgather, Bytes: 1024}); err != nil {
		b.Fatal(err)
	}
	for k := 0; k < c.topo.Rounds() && c.ops.at(*seq).mode.barrier; k++ { // it opens an epoch
		c.Control(now, c.topo.From(k),
			&wire.Control{Kind: wire.Ready, Round: uint8(k), Seq: *seq, Collective: wire.Allgather, Bytes: 1024})
	}
	if c.Err() != nil {
		b.Fatal(c.Err())
	}
	var run Run
	ok := c.NextRun(&run)
	if !ok {
		b.Fatal("nothing to send")
	}
	c.Sent(*seq, run.Count)
	for root := uint16(1); root < 4; root++ {
		h := run.Head
		h.Job, h.Root = job, root
		if _, ok := c.Place(now, &h, 1024); !ok {
			b.Fatal("not placed")
		}
		c.Received(now, &h)
	}
	for {
		if _, ok := c.NextControl(); !ok {
			break
		}
		c.PopControl()
	}
	if _, ok := c.NextDone(); !ok {
		b.Fatal("not done")
	}
	*seq++
}

// TestSteadyStateDoesNotAllocate holds the data path to it.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	c, seq := New(small(4, 1440)), uint32(0)
	for range 2 * maxKnown {
		oneSmall(t, c, &seq)
	}
	if n := testing.AllocsPerRun(1000, func() { oneSmall(t, c, &seq) }); n != 0 {
		t.Errorf("a small operation allocates %v times", n)
	}
	cfg := plain(4, 1440)
	cfg.Window = 64
	chunks := 4096
	c = openLarge(t, cfg, chunks*cfg.Chunk)
	psn := uint32(0)
	n := testing.AllocsPerRun(chunks-2, func() {
		h := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, PSN: psn, Bytes: uint32(chunks * cfg.Chunk)}
		if _, ok := c.Place(Time(psn), &h, cfg.Chunk); !ok {
			t.Fatal("not placed")
		}
		c.Received(Time(psn), &h)
		if _, ok := c.NextControl(); ok {
			c.PopControl()
		}
		psn++
	})
	if n != 0 {
		t.Errorf("a chunk allocates %v times", n)
	}
}

// BenchmarkRepair measures the search for the next chunk for a right neighbour that has received nothing of a large
// Broadcast, 3 million chunks, on average over all chunks.
func BenchmarkRepair(b *testing.B) {
	const chunks = 3 << 20
	c, left := New(plain(2, 1)), 0
	b.ReportAllocs()
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			c, left = New(plain(2, 1)), chunks
			if _, err := c.Post(0, Op{Collective: wire.Broadcast, Bytes: chunks}); err != nil {
				b.Fatal(err)
			}
			c.Control(0, 1, &wire.Control{Kind: wire.Ready, Collective: wire.Broadcast, Bytes: chunks})
			c.Sent(0, chunks)
			c.Control(0, 1, &wire.Control{Kind: wire.Fetch, Collective: wire.Broadcast, Bytes: chunks, Count: chunks})
			b.StartTimer()
		}
		r, ok := c.NextRepair()
		if !ok {
			b.Fatal("nothing to repair")
		}
		c.Repaired(&r)
		left--
	}
}
