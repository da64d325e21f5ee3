package reducescatter

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestLaps holds that a lap is sent together if Reduces to all ranks were in flight before one was
// done, and there is a track for each.
func TestLaps(t *testing.T) {
	const done = -1 // instead of a Reduce to a rank: the first one of the lap is done
	for _, s := range []struct {
		name     string
		ranks    int
		to       []int
		together bool
	}{
		{"all", 4, []int{0, 1, 2, 3}, true},
		{"two windows of each", 2, []int{0, 0, 1, 1}, true},
		{"one is missing", 4, []int{0, 1, 2}, false},
		{"one is done before the last is posted", 4, []int{0, 1, 2, done, 3}, false},
		{"one is done after", 4, []int{0, 1, 2, 3, done}, true},
		{"the next lap has not come so far", 2, []int{0, 1, 0}, false},
		{"as many ranks as there can be tracks", innetwork.MostTracks, []int{0, 1, 2, 3, 4, 5, 6, 7}, true},
		{"more", innetwork.MostTracks + 1, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			var l laps
			var lap uint32
			for _, to := range s.to {
				if to == done {
					l.done(lap)
					continue
				}
				lap = l.post(&direct.Op{Op: collective.Op{To: wire.ToRank(to)}}, s.ranks)
			}
			assert.Equal(t, s.together, l.together[lap%collective.MaxInFlight])
		})
	}
}
