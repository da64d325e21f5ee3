package engine

import (
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
)

// statsBox hands the protocol's counters to other goroutines.
type statsBox struct {
	last                                                multicast.Stats // what was stored, for the driver
	done, lost, repaired, dropped, barriers, mismatched atomic.Uint64
}

func (b *statsBox) store(s multicast.Stats) {
	if s == b.last {
		return // most rounds change nothing
	}
	b.last = s
	b.done.Store(s.Done)
	b.lost.Store(s.Lost)
	b.repaired.Store(s.Repaired)
	b.dropped.Store(s.Dropped)
	b.barriers.Store(s.Barriers)
	b.mismatched.Store(s.Mismatched)
}

func (b *statsBox) load() multicast.Stats {
	return multicast.Stats{
		Done: b.done.Load(), Lost: b.lost.Load(), Repaired: b.repaired.Load(),
		Dropped: b.dropped.Load(), Barriers: b.barriers.Load(), Mismatched: b.mismatched.Load(),
	}
}
