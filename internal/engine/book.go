package engine

import (
	"math/bits"
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Book is where operations of a kind are booked that are done, and well. Any goroutine may use it.
type Book struct {
	Waits *overlap.Ledger // the waits of these operations; nil: they are booked elsewhere
	Times Histogram       // how long they took
}

// add books an account.
func (b *Book) add(a overlap.Account) {
	if b.Waits != nil {
		b.Waits.Add(a)
	}
	b.Times.Add(a.Total())
}

const (
	leastTime = 13 // the first bucket of a Histogram holds what takes 1<<leastTime ns at most
	buckets   = 25
)

// Histogram counts durations by powers of two, from 8 us to 69 s, in memory that does not grow. Any goroutine may
// use it.
type Histogram struct {
	counts  [buckets]atomic.Uint64
	sum     atomic.Duration
	squares atomic.Float64
}

// Add counts one.
func (h *Histogram) Add(d time.Duration) {
	i := bits.Len64(uint64(max(d, 1)-1)) - leastTime // d <= 1<<(leastTime+i) ns
	h.counts[min(max(i, 0), buckets-1)].Inc()
	h.sum.Add(d)
	h.squares.Add(d.Seconds() * d.Seconds())
}

// Counts returns how many were counted in each bucket, their sum, and the sum of their squares (s^2). A bucket's
// durations are above the Bound of the one before and not above its own.
func (h *Histogram) Counts() (counts []uint64, sum time.Duration, squares float64) {
	counts = make([]uint64, buckets)
	for i := range counts {
		counts[i] = h.counts[i].Load()
	}
	return counts, h.sum.Load(), h.squares.Load()
}

// Bound returns the upper bound of a bucket; the last one has none.
func Bound(bucket int) time.Duration { return 1 << (leastTime + bucket) }
