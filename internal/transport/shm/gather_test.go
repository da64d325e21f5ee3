package shm

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// allgathers runs one Allgather for each shard size, back to back, and checks every byte.
func allgathers(w *Region, shards []int, shift int) error {
	p, size := newProbe(w), w.lay.Size
	for i, n := range shards {
		seq := uint32(i)
		own, all := make([]byte, n+shift), make([]byte, n*size+shift+1)
		fill(own[shift:], w.rank, seq)
		all[n*size+shift] = 0x5a
		if err := p.allgather(own[shift:], all[shift:][:n*size]); err != nil {
			return err
		}
		for r := range size {
			if err := check(all[shift+r*n:][:n], r, seq); err != nil {
				return fmt.Errorf("rank %d: %w", w.rank, err)
			}
		}
		if all[n*size+shift] != 0x5a {
			return fmt.Errorf("rank %d wrote past the result", w.rank)
		}
	}
	return nil
}

// together runs f for every region at the same time.
func together(t *testing.T, all []*Region, f func(*Region) error) {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for r, w := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[r] = f(w)
		}()
	}
	wg.Wait()
	for _, err := range errs {
		assert.NoError(t, err)
	}
}

func TestAllgather(t *testing.T) {
	shards := []int{0, 1, 7, 0, 0, 99, 100, 101, 299, 300, 301, 5000, 0, 12345, 3, 9001}
	for _, size := range []int{1, 2, 3, 4, 5, 9} {
		for _, slots := range []int{1, 3} {
			t.Run(fmt.Sprintf("%dranks%dslots", size, slots), func(t *testing.T) {
				lay := small(size)
				lay.Slots = slots
				all := regions(t, lay)
				together(t, all, func(w *Region) error { return allgathers(w, shards, w.rank) })
				for _, w := range all {
					st := w.Gather().Stats()
					want := uint64(0)
					if size > 1 {
						for _, n := range shards {
							want += uint64(chunks(n, lay.Chunk))
						}
					}
					assert.Equal(t, want, st.SentChunks)
					assert.Equal(t, want*uint64(size-1), st.ReceivedChunks)
					assert.Equal(t, st.SentBytes*uint64(size-1), st.ReceivedBytes)
					assert.Zero(t, st.Dropped)
				}
			})
		}
	}
}

// sender publishes chunks of the given operation and says how many were taken.
func sender(w *Region, seq uint32, shard []byte, from int) int {
	chunk := w.lay.Chunk
	return w.Gather().Multicast(&fabric.Run{
		Head: wire.Data{
			Collective: wire.Broadcast, Root: uint16(w.rank), Seq: seq, PSN: uint32(from), Bytes: uint32(len(shard)),
		},
		Count: chunks(len(shard), chunk) - from, Shard: shard,
	})
}

func TestSlowReaderStopsTheWriter(t *testing.T) {
	w := regions(t, small(3))
	shard := make([]byte, 1000)
	fill(shard, 0, 1)
	readers := []*probe{nil, newProbe(w[1]), newProbe(w[2])}
	for _, p := range readers[1:] {
		p.seq, p.shard, p.out, p.left = 1, len(shard), make([]byte, 3*len(shard)), 10
	}
	require.Equal(t, 3, sender(w[0], 1, shard, 0), "as many as there are slots")
	require.Equal(t, 0, sender(w[0], 1, shard, 3))
	require.Equal(t, 3, polled(readers[1].g, readers[1], 10), "the fast reader takes all")
	require.Equal(t, 0, sender(w[0], 1, shard, 3), "the slow one has taken none")
	require.Equal(t, 2, polled(readers[2].g, readers[2], 2), "a budget of two")
	require.True(t, readers[2].g.ready(), "what the budget left over must not be slept over")
	w[0].Gather().Sleep(time.Hour) // ends, since there is room for what was refused
	require.Equal(t, 2, sender(w[0], 1, shard, 3))
	for sent := 5; sent < 10 || readers[1].left+readers[2].left > 0; {
		readers[1].g.Poll(readers[1], 1)
		readers[2].g.Poll(readers[2], 10)
		if sent < 10 {
			sent += sender(w[0], 1, shard, sent)
		}
	}
	for _, p := range readers[1:] {
		require.NoError(t, check(p.out[:len(shard)], 0, 1))
	}
}

func TestHoldLeavesChunksWhereTheyAre(t *testing.T) {
	w := regions(t, small(3))
	later, now := make([]byte, 150), make([]byte, 150)
	fill(later, 0, 2)
	fill(now, 1, 1)
	require.Equal(t, 2, sender(w[0], 2, later, 0))
	require.Equal(t, 2, sender(w[1], 1, now, 0))
	p := newProbe(w[2])
	p.seq, p.shard, p.out, p.left = 1, 150, make([]byte, 450), 2
	require.Equal(t, 2, polled(p.g, p, 10), "rank 1's chunks pass those that are held")
	require.NoError(t, check(p.out[150:300], 1, 1))
	require.Equal(t, 0, polled(p.g, p, 10))
	require.False(t, p.g.ready(), "a held chunk is no reason to stay awake")
	p.g.Sleep(time.Millisecond)
	p.seq, p.left = 2, 2
	require.Equal(t, 2, polled(p.g, p, 10))
	require.NoError(t, check(p.out[:150], 0, 2))
}

// dropper wants nothing.
type dropper struct{ probe }

func (d *dropper) Accept(*wire.Data, int) ([]byte, fabric.Verdict, bool) {
	return nil, fabric.Drop, false
}

func TestDroppedChunksFreeTheirSlots(t *testing.T) {
	w := regions(t, small(2))
	d := &dropper{*newProbe(w[1])}
	d.seq, d.left = 1, 1
	for i := range 10 {
		require.Equal(t, 1, sender(w[0], 1, []byte{1}, 0), "round %d", i)
		require.Equal(t, 1, polled(w[1].Gather(), d, 10))
	}
	assert.EqualValues(t, 10, w[1].Gather().Stats().Dropped)
	assert.EqualValues(t, 0, w[1].Gather().Stats().ReceivedBytes)
}

func TestControl(t *testing.T) {
	const size = 6
	w := regions(t, small(size))
	for from := range size {
		for _, d := range topology.Distances(size) {
			to := (from + d) % size
			for i := range 3 {
				require.True(t,
					w[from].Gather().Control(to, &wire.Control{Kind: wire.Ready, Seq: uint32(from*100 + to*10 + i)}, nil))
			}
		}
		w[from].Gather().Flush()
	}
	for to := range size {
		p := newProbe(w[to])
		var n int
		for got := 1; got > 0; n += got {
			got = polled(p.g, p, 4)
		}
		require.Equal(t, 3*len(topology.Distances(size)), n)
		count := map[int]int{}
		for i, m := range p.messages {
			from := p.from[i]
			require.EqualValues(t, from*100+to*10+count[from], m.Seq, "from %d to %d", from, to)
			count[from]++
		}
		assert.Len(t, count, len(topology.Distances(size)))
		assert.EqualValues(t, n*wire.ControlSize, p.g.Stats().ControlBytes)
	}
}

func TestFullMailboxRefuses(t *testing.T) {
	w := regions(t, small(2))
	g, p := w[0].Gather(), newProbe(w[1])
	m := wire.Control{Kind: wire.Credit}
	for range 5 { // wraps
		n := uint32(0)
		for ; g.Control(1, &m, nil); n++ {
			require.Less(t, n, uint32(entries))
			m.Seq++
		}
		require.EqualValues(t, entries, n)
		require.False(t, g.ready())
		require.Equal(t, 1, polled(p.g, p, 1))
		g.Sleep(time.Hour) // ends, since there is room for what was refused
		require.Equal(t, entries-1, polled(p.g, p, 1000))
	}
	for i, got := range p.messages {
		require.EqualValues(t, i, got.Seq)
	}
}

func TestControlThatShmDoesNotCarry(t *testing.T) {
	w := regions(t, small(7))
	p := newProbe(w[0])
	require.True(t, p.g.Control(1, &wire.Control{Kind: wire.Repair, Bytes: 5}, make([]byte, 5)), "thrown away")
	w = regions(t, small(8))
	q := newProbe(w[0])
	require.True(t, q.g.Control(3, &wire.Control{Kind: wire.Done}, nil), "thrown away")
	for range 2 * entries {
		require.True(t, p.g.Control(1, &wire.Control{Kind: wire.Done}, nil), "a broken path has room for ever")
	}
	p.g.Poll(p, 1)
	q.g.Poll(q, 1)
	assert.EqualError(t, p.broken[1],
		"shm: repair with a payload for it: shared memory loses nothing and carries no repairs")
	assert.EqualError(t, q.broken[3], "shm: there is no mailbox for it, only for ranks a power of two away")
	assert.Len(t, q.broken, 1)
}

// TestSleepEnds would hang, not fail, if a Sleep missed an event.
func TestSleepEnds(t *testing.T) {
	w := regions(t, small(2))
	shard := make([]byte, 100)
	p := newProbe(w[1])
	p.seq, p.shard, p.out = 1, 100, make([]byte, 200)
	g := w[1].Gather()
	for i := range 300 {
		pause := time.Duration(i%3) * 100 * time.Microsecond // before, while and after it falls asleep
		done := make(chan struct{})
		go func() {
			defer close(done)
			systest.Pause(pause)
			switch i % 4 {
			case 0:
				g.Wake()
			case 1:
				w[0].Gather().Control(1, &wire.Control{Kind: wire.Done}, nil)
			default:
				sender(w[0], 1, shard, 0)
			}
		}()
		if i%4 == 0 {
			g.Sleep(time.Hour)
			<-done
			continue
		}
		p.left = 1
		for polled(p.g, p, 10) == 0 {
			g.Sleep(time.Hour)
		}
		<-done
	}
	g.Wake()
	g.Sleep(time.Hour) // the one before counts
	g.Sleep(time.Millisecond)
	g.Sleep(0)
	g.Sleep(-time.Second)
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	w := regions(t, small(2))
	p := newProbe(w[1])
	p.seq, p.shard, p.out = 1, 250, make([]byte, 500)
	run := fabric.Run{Head: wire.Data{Collective: wire.Allgather, Seq: 1, Bytes: 250}, Count: 3, Shard: make([]byte, 250)}
	m := wire.Control{Kind: wire.Ready}
	var sink fabric.Sink = p
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.left = 3
		w[0].Gather().Multicast(&run)
		w[0].Gather().Control(1, &m, nil)
		p.messages, p.from = p.messages[:0], p.from[:0]
		polled(w[1].Gather(), sink, 10)
		w[1].Gather().Sleep(time.Microsecond)
	}))
	assert.Zero(t, p.left)
}

// polled polls and returns how much came.
func polled(g fabric.Gather, s fabric.Sink, budget int) int {
	n, _ := g.Poll(s, budget)
	return n
}
