package udp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var offloads = []batch.Offload{batch.OffloadAuto, batch.OffloadGSO, batch.OffloadBatch, batch.OffloadSingle}

// exchange has every rank multicast its shard in turn, a window at a time, and checks every byte.
func exchange(t *testing.T, ranks []*Gather, shard int) []*sink {
	t.Helper()
	sinks := make([]*sink, len(ranks))
	for r, g := range ranks {
		sinks[r] = newSink(r, len(ranks), g.Traits().Chunk, shard)
	}
	for root, g := range ranks {
		b := make([]byte, shard)
		fill(b, uint16(root), 1)
		for sent := 0; sent < sinks[root].chunks(); {
			n := g.Multicast(run(uint16(root), 1, b, sent, min(g.Traits().Window, sinks[root].chunks()-sent)))
			require.Positive(t, n)
			sent += n
			for r := range ranks {
				if r != root {
					pollUntil(t, ranks[r], sinks[r], func() bool { return int(sinks[r].next[root]) == sent })
				}
			}
		}
	}
	for r, s := range sinks {
		require.NoError(t, s.check())
		require.Zero(t, s.left)
		require.Empty(t, s.broken)
		require.Zero(t, ranks[r].Stats().Misplaced, "all of it came as expected")
	}
	return sinks
}

func TestEveryStepCarriesEverySize(t *testing.T) {
	for _, offload := range offloads {
		for _, chunk := range []int{0, 8896, 1440, 64} {
			t.Run(fmt.Sprintf("%v/%d", offload, chunk), func(t *testing.T) {
				ranks, _ := group(t, 3, func(o *Options) { o.Offload, o.Chunk = offload, chunk })
				full := ranks[0].Traits().Chunk
				for _, shard := range []int{0, 1, full - 1, full, full + 1, 3*full + 17, 100 * full} {
					sinks := exchange(t, ranks, shard)
					require.Equal(t, max(1, (shard+full-1)/full), sinks[0].chunks())
				}
			})
		}
	}
}

func TestStatsCountWhatWent(t *testing.T) {
	ranks, _ := group(t, 3, func(o *Options) { o.Chunk = 1440 })
	const shard = 10*1440 + 5
	exchange(t, ranks, shard)
	for _, g := range ranks {
		s := g.Stats()
		require.EqualValues(t, shard+11*wire.DataSize, s.SentBytes)
		require.EqualValues(t, 11, s.SentChunks)
		require.EqualValues(t, 22, s.ReceivedChunks)
		require.Equal(t, 2*s.SentBytes, s.ReceivedBytes)
		require.Zero(t, s.Dropped)
	}
}

// TestStatsPrecedeTheSink: in the call for the last of n chunks, the counters say n.
func TestStatsPrecedeTheSink(t *testing.T) {
	const chunks = 40
	for _, offload := range []batch.Offload{batch.OffloadAuto, batch.OffloadBatch, batch.OffloadSingle} {
		ranks, _ := group(t, 2, func(o *Options) { o.Chunk, o.Offload = 1440, offload })
		shard := make([]byte, chunks*1440)
		require.Equal(t, chunks, ranks[0].Multicast(run(0, 1, shard, 0, chunks)))
		s := newSink(1, 2, 1440, len(shard))
		var last fabric.Stats
		s.onReceived = func(*wire.Data) { last = ranks[1].Stats() }
		pollUntil(t, ranks[1], s, func() bool { return s.left == 0 })
		require.EqualValues(t, chunks, last.ReceivedChunks)
		require.EqualValues(t, chunks*(wire.DataSize+1440), last.ReceivedBytes)
	}
}

func TestGroupOfOne(t *testing.T) {
	ranks, _ := group(t, 1, nil)
	s := newSink(0, 1, ranks[0].Traits().Chunk, 100)
	require.Equal(t, 1, ranks[0].Multicast(run(0, 1, make([]byte, 100), 0, 1)))
	require.Zero(t, polled(ranks[0], s, 10))
	ranks[0].Sleep(0)
}

func TestSubgroups(t *testing.T) {
	ranks, _ := group(t, 2, func(o *Options) { o.Subgroups, o.Chunk = 3, 1024 })
	const shard = 9 * 1024
	s := newSink(1, 2, 1024, shard)
	b := make([]byte, shard)
	fill(b, 0, 1)
	for i := range 9 {
		r := run(0, 1, b, i, 1)
		r.Head.Subgroup = uint8(i % 3)
		require.Equal(t, 1, ranks[0].Multicast(r))
	}
	subgroups := map[uint8]int{}
	s.onReceived = func(h *wire.Data) { subgroups[h.Subgroup]++ }
	pollUntil(t, ranks[1], s, func() bool { return s.left == 0 })
	require.NoError(t, s.check())
	require.Equal(t, map[uint8]int{0: 3, 1: 3, 2: 3}, subgroups)
}

// TestRootsThatSendAtOnce: where messages of two roots come by turns, the first one that is not where it was expected
// has the headers of the others looked at, until a root that sends alone makes guesses come true again.
func TestRootsThatSendAtOnce(t *testing.T) {
	for _, c := range []struct {
		offload     batch.Offload
		chunk, each int // bytes, chunks that a root sends at a time
		misplaced   int
	}{
		{offload: batch.OffloadAuto, chunk: 1440, each: 10, misplaced: 10},
		{offload: batch.OffloadAuto, chunk: 8896, each: 7, misplaced: 7},
		{offload: batch.OffloadSingle, chunk: 8896, each: 1, misplaced: 1},
	} {
		const turns = lookOn + 10
		ranks, _ := group(t, 3, func(o *Options) { o.Offload, o.Chunk = c.offload, c.chunk })
		s := newSink(2, 3, c.chunk, turns*c.each*c.chunk)
		var shards [2][]byte
		for root := range shards {
			shards[root] = make([]byte, s.shard)
			fill(shards[root], uint16(root), 1)
		}
		seen := 0
		for turn := range turns {
			for root, shard := range shards {
				require.Equal(t, c.each, ranks[root].Multicast(run(uint16(root), 1, shard, turn*c.each, c.each)))
				seen += c.each
			}
			pollUntil(t, ranks[2], s, func() bool { return int(ranks[2].Stats().ReceivedChunks) == seen })
		}
		require.NoError(t, s.check())
		require.EqualValues(t, c.misplaced, ranks[2].Stats().Misplaced, "%+v", c)
		require.Equal(t, lookOn-2, ranks[2].receivers[0].looks, "the last one of each root was expected")

		s.begin(2)
		fill(shards[1], 1, 2)
		s.next[0] = uint32(s.chunks()) // the other root sends nothing
		for sent := 0; sent < s.chunks(); sent += c.each {
			require.Equal(t, c.each, ranks[1].Multicast(run(1, 2, shards[1], sent, c.each)))
			pollUntil(t, ranks[2], s, func() bool { return int(s.next[1]) == sent+c.each })
		}
		require.EqualValues(t, c.misplaced, ranks[2].Stats().Misplaced, "%+v", c)
		require.Zero(t, ranks[2].receivers[0].looks)
	}
}

// TestSmallMessagesAreNotLookedAt: a second call would take longer than moving them.
func TestSmallMessagesAreNotLookedAt(t *testing.T) {
	ranks, _ := group(t, 3, func(o *Options) { o.Chunk, o.Offload = 1440, batch.OffloadSingle })
	const chunks = 50
	s := newSink(2, 3, 1440, chunks*1440)
	var shards [2][]byte
	for root := range shards {
		shards[root] = make([]byte, s.shard)
		fill(shards[root], uint16(root), 1)
	}
	for psn := range chunks {
		for root, shard := range shards {
			require.Equal(t, 1, ranks[root].Multicast(run(uint16(root), 1, shard, psn, 1)))
		}
	}
	pollUntil(t, ranks[2], s, func() bool { return s.left == 0 })
	require.NoError(t, s.check())
	require.EqualValues(t, chunks-1, ranks[2].Stats().Misplaced, "all of one root while the other's were expected")
}

// TestWrongGuessIsMended has two roots send at random, each chunk twice and in
// random order, while the receiver expects something else most of the time.
func TestWrongGuessIsMended(t *testing.T) {
	for _, offload := range offloads {
		for _, chunk := range []int{0, 1440} {
			t.Run(fmt.Sprintf("%v/%d", offload, chunk), func(t *testing.T) {
				ranks, _ := group(t, 3, func(o *Options) { o.Offload, o.Chunk = offload, chunk })
				chunk := ranks[0].Traits().Chunk
				shard := 20*chunk + 100
				rng := rand.New(rand.NewPCG(1, uint64(chunk)))
				s := newSink(2, 3, chunk, shard)
				s.guess = func() fabric.Expected { return s.expect(rng.IntN(2)) }
				shards := [2][]byte{make([]byte, shard), make([]byte, shard)}
				var sends [][2]int
				for root := range shards {
					fill(shards[root], uint16(root), 1)
					for psn := range s.chunks() {
						sends = append(sends, [2]int{root, psn}, [2]int{root, psn})
					}
				}
				rng.Shuffle(len(sends), func(i, j int) { sends[i], sends[j] = sends[j], sends[i] })
				var seen uint64
				for i, send := range sends {
					require.Equal(t, 1, ranks[send[0]].Multicast(run(uint16(send[0]), 1, shards[send[0]], send[1], 1)))
					seen++
					if i%3 == 2 || i == len(sends)-1 {
						pollUntil(t, ranks[2], s, func() bool { return ranks[2].Stats().ReceivedChunks == seen })
					}
				}
				require.Zero(t, s.left)
				require.NoError(t, s.check())
				stats := ranks[2].Stats()
				require.Positive(t, stats.Misplaced)
				require.EqualValues(t, 2*s.chunks(), stats.Dropped, "every chunk came twice")
			})
		}
	}
}

// TestShortMergedDatagramsAreUnravelled sends many datagrams shorter than a
// chunk in one buffer, so that they do not fit the slots.
func TestShortMergedDatagramsAreUnravelled(t *testing.T) {
	ranks, o := group(t, 2, func(o *Options) { o.Offload, o.Chunk = batch.OffloadGSO, 1440 })
	fd, err := openSender(&o, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	const small, count = 100, 30
	require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, wire.DataSize+small))
	s := newSink(1, 2, small, small*count) // The sink believes in chunks of 100 bytes.
	for _, guess := range []func() fabric.Expected{
		func() fabric.Expected { return s.expect(0) },
		func() fabric.Expected { return fabric.Expected{} },
	} {
		s.begin(s.seq + 1)
		s.guess = guess
		shard := make([]byte, small*count)
		fill(shard, 0, s.seq)
		var message []byte
		for psn := range count {
			var b [wire.DataSize]byte
			h := wire.Data{Collective: wire.Allgather, Job: o.Job, Seq: s.seq, PSN: uint32(psn)}
			h.Put(b[:])
			message = append(append(message, b[:]...), shard[psn*small:(psn+1)*small]...)
		}
		_, err = unix.Write(fd, message)
		require.NoError(t, err)
		pollUntil(t, ranks[1], s, func() bool { return s.left == 0 })
		require.NoError(t, s.check())
	}
}

// TestOverflowLosesWholeChunksOnly sends far more than the queue holds.
func TestOverflowLosesWholeChunksOnly(t *testing.T) {
	for _, offload := range offloads {
		t.Run(offload.String(), func(t *testing.T) {
			ranks, _ := group(t, 2, func(o *Options) { o.Offload, o.Chunk, o.RcvBuf = offload, 1440, 32<<10 })
			const chunks = 2000
			shard := make([]byte, chunks*1440)
			fill(shard, 0, 1)
			s := newSink(1, 2, 1440, len(shard))
			require.Equal(t, chunks, ranks[0].Multicast(run(0, 1, shard, 0, chunks)))
			pollUntil(t, ranks[1], s, func() bool { return polled(ranks[1], s, 100) == 0 })
			held := chunks - s.left
			require.GreaterOrEqual(t, held, ranks[1].Traits().Window)
			require.Positive(t, s.left)
			for psn, got := range s.got[0] {
				if got {
					at := psn * 1440
					require.Equal(t, shard[at:at+1440], s.of(0)[at:at+1440])
				}
			}
			// What was lost is sent again, like a repair.
			for psn, got := range s.got[0] {
				if !got {
					require.Equal(t, 1, ranks[0].Multicast(run(0, 1, shard, psn, 1)))
					pollUntil(t, ranks[1], s, func() bool { return s.got[0][psn] })
				}
			}
			require.NoError(t, s.check())
		})
	}
}

// TestWindowHolds keeps exactly a window on its way to a receiver that reads some chunks only now and then: nothing
// may be lost.
func TestWindowHolds(t *testing.T) {
	for _, rcvBuf := range []int{212992, 4 << 20} {
		for _, chunk := range []int{0, 32 << 10, 8896, 1440} {
			for _, offload := range []batch.Offload{batch.OffloadAuto, batch.OffloadBatch} {
				t.Run(fmt.Sprintf("%d/%d/%v", rcvBuf, chunk, offload), func(t *testing.T) {
					ranks, _ := group(t, 2, func(o *Options) {
						o.Chunk, o.RcvBuf, o.Offload, o.Window = chunk, rcvBuf, offload, 1<<30
					})
					window, chunk := ranks[1].Traits().Window, ranks[1].Traits().Chunk
					shard := make([]byte, 3*window*chunk)
					fill(shard, 0, 1)
					s := newSink(1, 2, chunk, len(shard))
					rng := rand.New(rand.NewPCG(uint64(chunk), uint64(rcvBuf)))
					for sent := 0; s.left > 0; {
						room := min(int(s.next[0])+window, s.chunks()) - sent
						if room > 0 {
							sent += ranks[0].Multicast(run(0, 1, shard, sent, room))
						}
						want := s.next[0] + 1 + uint32(rng.IntN(window))
						for s.next[0] < min(want, uint32(sent)) {
							require.Positive(t, polled(ranks[1], s, 1+rng.IntN(8)), "chunk %d of %d is lost, window %d", s.next[0],
								s.chunks(), window)
						}
					}
					require.NoError(t, s.check())
				})
			}
		}
	}
}

// TestDataPathDoesNotAllocate runs send and receive under Go's counter.
func TestDataPathDoesNotAllocate(t *testing.T) {
	for _, chunk := range []int{0, 1440} {
		ranks, _ := group(t, 2, func(o *Options) { o.Chunk = chunk })
		chunk := ranks[0].Traits().Chunk
		s := newSink(1, 2, chunk, 4*chunk)
		r := run(0, 1, make([]byte, 4*chunk), 0, 4)
		credit := &wire.Control{Kind: wire.Credit, Collective: wire.Allgather, Seq: 1}
		credits := 0
		s.onControl = func(int, *wire.Control) { credits++ }
		require.Zero(t, testing.AllocsPerRun(100, func() {
			s.begin(1)
			ranks[0].Multicast(r)
			ranks[0].Control(1, credit, nil)
			ranks[0].Flush()
			for s.left > 0 || credits == 0 {
				if polled(ranks[1], s, 64) == 0 {
					ranks[1].Sleep(time.Millisecond)
				}
			}
			credits--
		}))
	}
}

// TestSleep checks that arrivals and Wake end a Sleep that would else outlast the test.
func TestSleep(t *testing.T) {
	ranks, _ := group(t, 2, nil)
	for name, end := range map[string]func(){
		"wake before": ranks[1].Wake,
		"datagram":    func() { ranks[0].Multicast(run(0, 1, nil, 0, 1)) },
		"control": func() {
			ranks[0].Control(1, &wire.Control{Kind: wire.Done, Collective: wire.Allgather}, nil)
			ranks[0].Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			end()
			ranks[1].Sleep(time.Hour)
			s := newSink(1, 2, ranks[1].Traits().Chunk, 0)
			pollUntil(t, ranks[1], s, func() bool { return name == "wake before" || s.left == 0 || len(s.heard) > 0 })
		})
	}
	t.Run("wake after", func(*testing.T) {
		go func() {
			systest.Pause(20 * time.Millisecond)
			ranks[1].Wake()
		}()
		ranks[1].Sleep(time.Hour)
	})
}
