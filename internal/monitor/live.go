package monitor

import (
	"context"
	"log/slog"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Live is what a rank publishes of a group, see internal/live.
type Live struct {
	Group string `json:"group"` // the same on all its ranks; no other group has it
	// Info is without what grows with the ranks.
	Info     Info              `json:"info"`
	Counters map[string]uint64 `json:"counters"` // by name: docs/reference/counters.md
	// GatherInFlight and ReduceInFlight are operations of the lanes that are not done, steps each.
	GatherInFlight int               `json:"gather_in_flight"`
	ReduceInFlight int               `json:"reduce_in_flight"`
	Waiting        []Waiting         `json:"waiting"` // what has not moved for a second or more
	Times          []hierarchy.Times `json:"times"`
	// Awaited is this rank, for the waits of its own sending, and others, ascending: the mostAwaited ranks that were
	// waited for most in recent time, and the mostAwaited ranks with the most repaired chunks. AwaitedOthers is how
	// many more were waited for.
	Awaited       []Awaited `json:"awaited"`
	AwaitedOthers int       `json:"awaited_others"`
	Failed        string    `json:"failed,omitempty"` // why all operations end
}

// publish lets others of this user see the group. It goes on unseen where that cannot be.
func (m *Monitor) publish() {
	m.mesh.Answer(m.snapshot)
	withdraw, err := m.seen.publish(m.plan.Settings.Metrics, func() any { return m.Live() },
		&live.Job{Group: m.plan.Name(), Ask: m.ask})
	if err != nil {
		level := slog.LevelInfo
		if m.plan.Settings.Metrics != "auto" { // somebody named the place
			level = slog.LevelWarn
		}
		m.log.Log(context.Background(), level, "mcast top and mcast metrics do not see this rank", "MCAST_METRICS",
			m.plan.Settings.Metrics, "error", err)
		return
	}
	m.withdraw = withdraw
}

// Live returns what the group is and does now.
func (m *Monitor) Live() Live {
	l := Live{
		Group: m.plan.Name(), Info: m.Info(), Counters: map[string]uint64{}, Waiting: m.Waiting(), Times: m.ops.Times(),
		Awaited:        m.Awaited(),
		GatherInFlight: m.ops.Column().InFlight(overlap.Gather), ReduceInFlight: m.ops.Column().InFlight(overlap.Reduce),
	}
	s := m.Stats()
	s.each(func(name string, value uint64) { l.Counters[name] = value })
	if f := m.mesh.Err(); f != nil {
		l.Failed = f.Error()
	}
	l.shorten(&m.recent)
	return l
}

// mostInRing bounds the ranks of a ring that a page has.
const mostInRing = 256

// shorten takes out what grows with the ranks: a process may have a hundred groups of a thousand.
func (l *Live) shorten(recent *Recent) {
	l.Info.Peers, l.Info.Unheard = nil, nil
	switch n := len(l.Info.Ring); {
	case n == l.Info.Size && slices.IsSorted(l.Info.Ring):
		l.Info.Ring = nil // the order of the numbers
	case n > mostInRing:
		l.Info.Ring = []int{} // unknown
	}
	l.Awaited, l.AwaitedOthers = recent.Most(l.Info.Rank, l.Awaited)
	l.Waiting = slices.Clone(l.Waiting)
	for i := range l.Waiting {
		w := &l.Waiting[i]
		most := min(mostAwaited, len(w.Ranks))
		w.Ranks, w.Others = w.Ranks[:most], len(w.Ranks)-most
	}
}
