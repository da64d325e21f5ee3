package reducescatter

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// laps says which Reduces are windows of a Reduce-Scatter that were all in flight at a time, in a job
// with a track for each rank (docs/decisions/0038). Reduces are posted in the order of ranks; a new
// lap begins with each to a lower one than the last. The zero value is ready.
type laps struct {
	last   uint32
	to     int // to whom the last Reduce was
	owners int // of the last lap, so far
	broken bool
	// together says it of each lap; no more than MaxInFlight are in flight.
	together [collective.MaxInFlight]bool
}

// post adds an operation and returns its lap.
func (l *laps) post(o *direct.Op, ranks int) uint32 {
	r, one := o.To.Root()
	if !one {
		return l.last
	}
	if l.owners == 0 || r < l.to {
		l.last++
		l.owners, l.broken = 0, false
		l.together[l.last%collective.MaxInFlight] = false
	}
	if l.owners == 0 || r != l.to {
		l.to = r
		l.owners++
	}
	if l.owners == ranks && innetwork.TracksFor(ranks) == ranks && !l.broken {
		l.together[l.last%collective.MaxInFlight] = true
	}
	return l.last
}

// done notes that an operation of a lap is done.
func (l *laps) done(lap uint32) { l.broken = l.broken || lap == l.last }
