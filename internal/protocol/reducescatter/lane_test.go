package reducescatter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// begin starts all lanes, through the switch or directly.
func (w *world) begin(switched bool) {
	if switched {
		w.start()
	}
	for _, r := range w.ranks {
		if !switched {
			r.lane.Open(end{r})
			r.lane.Begin(1, nil)
			continue
		}
		r.lane.Begin(1, w.joins(r.number, 1))
	}
}

// until steps all ranks until ok, as long as operations end: a window of 8 slots
// of 8 bytes that loses every fifth datagram is slow, and not a hang.
func (w *world) until(ok func() bool) {
	for n, done := 0, 0; !ok(); n++ {
		if now := w.done(); now != done {
			n, done = 0, now
		}
		if n > 20_000_000 { // the slowest seen takes 1.6 million
			for _, r := range w.ranks {
				w.Errorf("rank %d: posted %d, oldest %d, done %d, epoch %d, announced %v", r.number, r.lane.posted, r.lane.oldest,
					r.done, r.lane.epoch, r.lane.news)
			}
			require.Fail(w, "no end")
		}
		w.step()
	}
}

// lose takes the switch away: ranks notice one after another while the others
// go on, and resume one after another once all have.
func (w *world) lose(epoch uint32) {
	order := w.rng.Perm(len(w.ranks))
	records := make([][]byte, len(w.ranks))
	for i, r := range order {
		if i == w.rng.IntN(len(order)) {
			w.stripes = nil // with those still on it, or after all have left
		}
		records[r] = w.ranks[r].lane.Stop(epoch)
		require.Zero(w, w.ranks[r].lane.Room())
		w.steps(40)
	}
	w.stripes = nil
	for _, r := range w.rng.Perm(len(w.ranks)) {
		if !w.ranks[r].lane.Opened() {
			w.ranks[r].lane.Open(end{w.ranks[r]})
		}
		require.NoError(w, w.ranks[r].lane.Resume(records))
		w.steps(40)
	}
}

// rejoin brings the switch back; ranks hear one after another that all have joined.
func (w *world) rejoin(epoch uint32, ranks int) {
	w.start()
	for _, r := range w.rng.Perm(len(w.ranks))[:ranks] {
		w.ranks[r].lane.Join(w.joins(r, epoch))
		w.steps(60)
	}
}

func (w *world) steps(most int) {
	for range w.rng.IntN(most) {
		w.step()
	}
}

func (w *world) finished() bool {
	for _, r := range w.ranks {
		if r.done < len(w.calls) {
			return false
		}
	}
	return true
}

// done counts the operations that have ended, at all ranks.
func (w *world) done() int {
	n := 0
	for _, r := range w.ranks {
		n += r.done
	}
	return n
}

// TestSwitchComesAndGoes is the lane's whole promise: every operation ends right at every rank, no matter when the
// switch comes or goes; buffers are free when it says so (world spoils them).
func TestSwitchComesAndGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "ranks")
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), size, rapid.IntRange(1, 150).Draw(t, "operations"))
		w.loss = rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(t, "loss")
		switched := rapid.Bool().Draw(t, "switch at first")
		w.begin(switched)
		joined := switched
		epoch := uint32(1)
		for range rapid.IntRange(0, 4).Draw(t, "turns") {
			w.steps(4000)
			if !joined {
				epoch++
				ranks := size
				if w.rng.IntN(4) == 0 {
					ranks = w.rng.IntN(size + 1) // the switch is lost before all have heard
				}
				w.rejoin(epoch, ranks)
				if joined = true; ranks == size {
					w.steps(4000)
				}
			}
			if w.rng.IntN(3) > 0 {
				w.lose(epoch)
				joined = false
			}
		}
		if joined && w.stripes != nil {
			joinedAll := true
			for _, r := range w.ranks {
				joinedAll = joinedAll && r.lane.member != nil
			}
			if !joinedAll {
				w.lose(epoch)
			}
		}
		w.until(w.finished)
		for _, r := range w.ranks {
			require.Empty(t, r.flying)
			s := r.lane.Stats()
			require.EqualValues(t, len(w.calls), s.Direct+s.Switched)
			require.EqualValues(t, r.lane.posted, r.lane.oldest)
			require.Empty(t, r.lane.need)
		}
	})
}

// TestNumbersWrapAround: 2^31 and 2^32 operations after the switch came in use, it is lost and joined
// again as at any other time.
func TestNumbersWrapAround(t *testing.T) {
	const half, around = 1 << 31, 300
	for _, wrap := range []uint32{half, 0} {
		for _, lost := range []int{around / 2, around + 1, 2 * around} {
			t.Run(fmt.Sprintf("%#x/lost after %d", wrap, lost), func(t *testing.T) {
				w := newWorld(t, uint64(lost), 3, 3*around)
				w.first = wrap - around
				for _, r := range w.ranks {
					r.lane.posted, r.lane.oldest = w.first, w.first
				}
				w.begin(true)
				for _, r := range w.ranks {
					r.lane.news.From = wrap - half // half of all numbers pass during the test
				}
				w.until(func() bool { return w.ranks[1].done >= lost })
				w.lose(1)
				w.until(func() bool { return w.ranks[2].done >= lost+20 })
				w.rejoin(2, 3)
				w.until(w.finished)
				for _, r := range w.ranks {
					assert.True(t, r.through[w.first+3*around-1])
					assert.Greater(t, r.lane.Stats().Direct, uint64(10))
				}
			})
		}
	}
}

// TestSwitchIsUsedAgain: after a loss and a rejoin everything from some
// operation on goes through the switch, the same at all ranks.
func TestSwitchIsUsedAgain(t *testing.T) {
	w := newWorld(t, 7, 4, 400)
	w.begin(true)
	for w.ranks[2].done < 20 {
		w.step()
	}
	w.lose(1)
	w.rejoin(2, 4)
	w.until(w.finished)
	first := -1
	for i := range w.calls {
		for _, r := range w.ranks {
			n := uint32(i)
			if i > 100 {
				require.True(t, r.through[n], "operation %d, rank %d", i, r.number)
			}
			if i > 60 {
				require.Equal(t, w.ranks[0].through[n], r.through[n], "operation %d, rank %d", i, r.number)
			}
		}
		if first < 0 && i > 20 && !w.ranks[0].through[uint32(i)] {
			first = i
		}
	}
	require.Positive(t, first, "nothing went directly")
	for _, r := range w.ranks {
		assert.Greater(t, r.lane.Stats().Switched, uint64(300))
		assert.Greater(t, r.lane.Stats().Direct, uint64(10))
	}
}

// TestEmptyOperationsAheadOfALoss: an operation without elements is done at a rank before others have posted it. When
// the switch is lost then, they must not look for it on the direct path.
func TestEmptyOperationsAheadOfALoss(t *testing.T) {
	w := newWorld(t, 3, 3, 40)
	for i := range w.calls[:20] {
		c := &w.calls[i]
		c.Count = 0
		for r := range w.ranks {
			c.inputs[r], c.want[r] = c.inputs[r][:0], c.want[r][:0]
		}
	}
	w.begin(true)
	for w.ranks[1].done < 12 {
		w.ranks[1].step()
	}
	require.Zero(t, w.ranks[0].lane.posted)
	w.lose(1)
	w.rejoin(2, 3)
	w.until(w.finished)
}

// join brings the switch back for all ranks at once.
func (w *world) join(epoch uint32) {
	w.start()
	for _, r := range w.ranks {
		r.lane.Join(w.joins(r.number, epoch))
	}
}

// postAll lets a rank post as far as it has room.
func (r *rank) postAll() {
	for int(r.lane.posted) < len(r.calls) && r.lane.Room() > 0 {
		r.post(&r.calls[r.lane.posted])
	}
}

// TestAnnouncementIsInTime: a rank that is as far ahead of rank 0 as can be
// still sends all that it posts before it hears of the switch the way that rank 0 does.
func TestAnnouncementIsInTime(t *testing.T) {
	w := newWorld(t, 1, 2, 100)
	w.begin(false)
	w.ranks[1].postAll()
	require.EqualValues(t, collective.MaxInFlight, w.ranks[1].lane.posted)
	w.join(2)
	w.until(w.finished)
	for _, r := range w.ranks {
		require.Equal(t, w.ranks[0].through, r.through)
		require.True(t, r.through[99])
	}
}

// TestOldAnnouncement: what rank 0 announced before the switch was lost means
// nothing to a rank that reads it afterwards.
func TestOldAnnouncement(t *testing.T) {
	w := newWorld(t, 1, 2, 100)
	w.begin(false)
	w.join(2)
	w.ranks[0].postAll()
	for range 100 {
		w.ranks[0].step()
	}
	records := [][]byte{w.ranks[0].lane.Stop(2), w.ranks[1].lane.Stop(2)}
	w.stripes = nil
	for _, r := range w.ranks {
		require.NoError(t, r.lane.Resume(records))
	}
	w.until(w.finished)
	for _, r := range w.ranks {
		require.EqualValues(t, 100, r.lane.Stats().Direct)
	}
}

// TestEmptyOperationWaitsForAll: with nothing to lack, an operation that one rank has not
// posted when the switch is lost is still done at none before it does.
func TestEmptyOperationWaitsForAll(t *testing.T) {
	w := newWorld(t, 1, 2, 1)
	c := &w.calls[0]
	c.Count = 0
	for r := range w.ranks {
		c.inputs[r], c.want[r] = c.inputs[r][:0], c.want[r][:0]
	}
	w.begin(true)
	w.ranks[0].postAll()
	records := [][]byte{w.ranks[0].lane.Stop(1), w.ranks[1].lane.Stop(1)}
	for _, r := range w.ranks {
		r.lane.Open(end{r})
		require.NoError(t, r.lane.Resume(records))
	}
	for range 100 {
		w.ranks[0].step()
	}
	require.Zero(t, w.ranks[0].done)
	w.until(w.finished)
}

// TestRecordDoesNotChange: the record that a rank has told the others stays true until the rank resumes, although
// datagrams still come.
func TestRecordDoesNotChange(t *testing.T) {
	held := 0
	for seed := range uint64(20) {
		w := newWorld(t, seed, 3, 60)
		w.loss = 0.1
		w.begin(true)
		for w.ranks[0].done < 10 {
			w.step()
		}
		r := w.ranks[0]
		var rec record
		require.NoError(t, rec.parse(r.lane.Stop(1)))
		require.Len(t, rec.entries, len(r.flying))
		before := map[uint32][]byte{}
		for number, o := range r.flying {
			before[number] = slices.Clone(o.Recv)
		}
		w.steps(4000)
		require.Len(t, r.flying, len(before), "nothing that the switch has may end now")
		for _, e := range rec.entries {
			require.Equal(t, before[e.number], r.flying[e.number].Recv)
			for _, h := range e.held {
				require.Equal(t, w.calls[e.number].want[0][h.From:h.To], before[e.number][h.From:h.To])
				held += h.To - h.From
			}
		}
	}
	require.Positive(t, held)
}

func TestRecordsThatDiffer(t *testing.T) {
	stop := func(rank, count int, to wire.Target) (*Lane, []byte) {
		l := New(rank, 2)
		l.Begin(1, NewSwitchConn(SwitchConnConfig{
			Rank: rank, Number: rank, Terms: innetwork.Terms{Job: 1, Ranks: 2, Stripes: 1, Chunk: 64, Slots: 8},
		}))
		o := direct.Op{
			Op: collective.Op{To: to, Count: count, Type: reduce.F32}, Send: make([]byte, 8*count), Recv: make([]byte, 4*count),
		}
		l.Post(0, o)
		l.Open(nil)
		return l, l.Stop(1)
	}
	for want, other := range map[string]struct {
		count int
		to    wire.Target
	}{"24 bytes": {6, 0}, "reduce to rank 1": {5, wire.ToRank(1)}} {
		a, one := stop(0, 5, 0)
		b, two := stop(1, other.count, other.to)
		for _, l := range []*Lane{a, b} {
			var m *collective.MismatchError
			require.ErrorAs(t, l.Resume([][]byte{one, two}), &m)
			assert.Contains(t, m.Error(), want)
			assert.Equal(t, [2]int{0, 1}, m.Who, "whichever rank finds it")
			assert.Contains(t, m.What[0].String(), "20 bytes")
		}
	}
	c, three := stop(0, 5, 0)
	require.ErrorIs(t, c.Resume([][]byte{three, nil}), errRecord)
	require.ErrorContains(t, c.Resume([][]byte{three, New(1, 2).Stop(2)}), "epoch 2")
}

func FuzzRecord(f *testing.F) {
	good := record{epoch: 3, posted: 9, entries: []entry{
		{number: 7, bytes: 100, held: []collective.Range{{From: 8, To: 16}, {From: 64, To: 100}}}, {number: 8},
	}}
	f.Add(good.append(nil))
	good.entries[1].to, good.entries[1].bytes = wire.ToRank(1), 24
	f.Add(good.append(nil))
	f.Add([]byte{1, 2, 0, 1, 1, 100, 2, 0, 8, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again record
		if r.parse(b) != nil {
			return
		}
		require.NoError(t, again.parse(r.append(nil)))
		require.Equal(t, r, again)
		for i := range r.entries {
			e := &r.entries[i]
			root, one := e.to.Root()
			if one {
				require.Empty(t, e.lacks(root+1), "only the root gets anything")
			}
			n := 0
			for _, l := range e.lacks(root) {
				require.Less(t, l.From, l.To)
				n += l.To - l.From
			}
			for _, h := range e.held {
				n += h.To - h.From
			}
			require.Equal(t, e.bytes, n)
		}
	})
}
