package hierarchy

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Level is some ranks of a group that work together over one fabric, and the lanes on which this rank does.
// A group has a level of the ranks that the network joins. Where hosts hold several ranks, it has another one of the
// ranks of this host, which share memory.
type Level struct {
	Members *team.Members
	Gather  *engine.Gather
	Reduce  *engine.Reduce
	Lanes   [2]*overlap.Lane // of gather and reduce
}

// NewLevel makes the level of some ranks, with a lane for each of its engines.
func NewLevel(m *team.Members, gather *engine.Gather, reduce *engine.Reduce) *Level {
	return &Level{Members: m, Gather: gather, Reduce: reduce, Lanes: [2]*overlap.Lane{
		overlap.Gather: overlap.NewLane(gather),
		overlap.Reduce: overlap.NewLane(reduce),
	}}
}

// InFlight returns how many operations of a class were posted and are not done.
func (l *Level) InFlight(c overlap.Class) int {
	if c == overlap.Gather {
		return l.Gather.InFlight()
	}
	return l.Reduce.InFlight()
}

// Fail ends all operations.
func (l *Level) Fail(err error) {
	l.Gather.Fail(err)
	l.Reduce.Fail(err)
}

// Help does a little of what there is to do, if nobody else is at it: see overlap.Lane.
func (l *Level) Help() {
	for _, lane := range l.Lanes {
		lane.Help()
	}
}

// Stop ends the agents, and the operations in flight.
func (l *Level) Stop() {
	for _, lane := range l.Lanes {
		lane.Close()
	}
	l.Gather.Work()
	l.Reduce.Work()
}

// Close frees a level that was stopped.
func (l *Level) Close() error { return errors.Join(l.Reduce.Close(), l.Gather.Close()) }
