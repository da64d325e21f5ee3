package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHistogram: a duration is in the first bucket with a bound that is not below it.
func TestHistogram(t *testing.T) {
	for d, bucket := range map[time.Duration]int{
		-1: 0, 0: 0, 1: 0, Bound(0): 0, Bound(0) + 1: 1, Bound(1): 1, Bound(1) + 1: 2,
		Bound(buckets - 2): buckets - 2, Bound(buckets-2) + 1: buckets - 1, time.Hour: buckets - 1,
	} {
		var h Histogram
		h.Add(d)
		counts, sum, squares := h.Counts()
		want := make([]uint64, buckets)
		want[bucket] = 1
		require.Equal(t, want, counts, d)
		require.Equal(t, d, sum)
		require.InDelta(t, d.Seconds()*d.Seconds(), squares, 0)
	}
}
