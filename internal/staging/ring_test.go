package staging

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlotsGrow: pinned memory is what the largest operation needs, and groups leave it to each other.
func TestSlotsGrow(t *testing.T) {
	const large = 128 << 10
	all := group(t, 2, 16*large, 0, nil)
	require.Zero(t, step(t, all, 2, 4))
	r := all[0]
	small := r.card.Pinned()
	require.LessOrEqual(t, small, 2*slots*(leastSlot+line))
	require.Zero(t, step(t, all, 2, large))
	both := r.card.Pinned()
	require.Equal(t, small+2*slots*2*large, both)
	made := r.Stats().Made
	for seed := range 4 {
		require.Zero(t, step(t, all, seed, large))
		require.Zero(t, step(t, all, seed, 4))
	}
	require.Equal(t, made, r.Stats().Made, "nothing is made in the steady state")
	for _, r := range all {
		<-r.Shut()
		r.Close()
		r.Copier = NewCopier(r.cfg)
	}
	require.Zero(t, step(t, all, 2, 4))
	require.Zero(t, step(t, all, 3, large))
	require.Equal(t, both, r.card.Pinned(), "a ring that is too small takes what another has outgrown, or is not taken")
}

func TestSlotSizes(t *testing.T) {
	for _, c := range []struct{ bytes, ranks, want int }{
		{0, 2, leastSlot},
		{leastSlot + 1, 2, 2 * leastSlot},
		{2 << 20, 2, 2 << 20},
		{3 << 20, 3, 3 << 20},
		{64 << 20, 64, 64 << 20},
		{1, 1 << 21, leastSlot},
	} {
		require.Equal(t, c.want, slotFor(c.bytes, c.ranks))
	}
}

// TestOneCopyForManyRows: what a piece costs does not grow with the number of ranks.
func TestOneCopyForManyRows(t *testing.T) {
	smallPieces(t)
	for _, ranks := range []int{2, 7} {
		const pieces = 6
		all := group(t, ranks, 4*ranks*pieces*smallPiece, 0, nil)
		require.Zero(t, step(t, all, 2, 100))
		r := all[1]
		before := r.card.Calls()
		require.Zero(t, step(t, all, 3, pieces*smallPiece))
		calls := r.card.Calls()
		for call, n := range before {
			calls[call] -= n
		}
		require.Equal(t, 2*pieces, calls["CopyOut"], "an Allgather's shard, and all of a Reduce-Scatter's")
		behind := 0
		if ranks > 2 {
			behind = pieces
		}
		require.Equal(t, 2*pieces+behind, calls["CopyIn"], "those before the rank, those behind it, and the sum")
		require.Equal(t, 2*(pieces+1), calls["Call"])
	}
}

// BenchmarkPiece says what a piece costs the host beside its collective: calls of the driver, and allocations, to
// which a real driver's Call adds (BenchmarkCall of gpudirect).
func BenchmarkPiece(b *testing.B) {
	const pieces, ranks = 64, 8
	start := func([]byte, int) (Operation, error) { return done{}, nil }
	for _, p := range []Plan{
		Allgather(1, ranks, 1, 1, pieces*pieceBytes, start),
		ReduceScatter(1, ranks, 1, 1, pieces*pieceBytes, start),
		Allreduce(ranks, 1, 1, pieces*slot(ranks), start),
	} {
		b.Run(p.Name, func(b *testing.B) {
			card := &nothing{}
			s := NewCopier(Config{
				Ranks: ranks, Open: func(int) (Card, error) { return card, nil }, Err: func() error { return nil },
			})
			post := func() {
				w, err := s.Post(At{}, p)
				if err != nil {
					b.Fatal(err)
				}
				w.Release()
				for s.Waits(p.Orders) {
					runtime.Gosched()
				}
			}
			post()
			var before, after runtime.MemStats
			calls := card.calls.Load()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				post()
			}
			runtime.ReadMemStats(&after)
			all := float64(b.N * pieces)
			b.ReportMetric(float64(card.calls.Load()-calls)/all, "calls/piece")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/all, "allocs/piece")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/all, "B/piece")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/piece")
			s.Close()
		})
	}
}

type done struct{}

func (done) OnDone(f func(error)) { f(nil) }

// nothing is a device that does nothing, and has done all at once. It counts calls that queue.
type nothing struct{ calls atomic.Int64 }

func (c *nothing) queued() error {
	c.calls.Add(1)
	return nil
}
func (c *nothing) Pin(size int) ([]byte, error)                     { return make([]byte, size), nil }
func (c *nothing) NewStream() (uintptr, error)                      { return 1, nil }
func (c *nothing) NewEvent() (uintptr, error)                       { return 1, nil }
func (c *nothing) Capturing(uintptr) (bool, error)                  { return false, nil }
func (c *nothing) Idle(uintptr) (bool, error)                       { return true, nil }
func (c *nothing) Record(uintptr, uintptr) error                    { return c.queued() }
func (c *nothing) Wait(uintptr, uintptr) error                      { return c.queued() }
func (c *nothing) WaitWord(uintptr, *uint32, uint32) error          { return c.queued() }
func (c *nothing) CopyOut([]byte, uintptr, int, int, uintptr) error { return c.queued() }
func (c *nothing) CopyIn(uintptr, []byte, int, int, uintptr) error  { return c.queued() }
func (c *nothing) CopyWithin(uintptr, uintptr, int, uintptr) error  { return c.queued() }
func (c *nothing) Call(_ uintptr, f func()) error                   { f(); return c.queued() }
