package sys

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBeatsCoincide: for any times of beginning, all beats come at the same moments from the
// first one on.
func TestBeatsCoincide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = 3750 * time.Millisecond
		beats := map[time.Time]int{}
		for range 10 {
			time.Sleep(123 * time.Millisecond) //nolint:forbidigo // in a bubble
			wait := NextBeat(period)
			require.Positive(t, wait)
			require.LessOrEqual(t, wait, period)
			beats[time.Now().Add(wait)]++
		}
		require.Len(t, beats, 1)
		time.Sleep(NextBeat(period)) //nolint:forbidigo // in a bubble
		require.Equal(t, period, NextBeat(period), "not the one that is now")
	})
}
