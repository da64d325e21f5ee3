package engine

import (
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
)

// ReduceStats count what a Reduce engine did.
type ReduceStats struct {
	reducescatter.Stats
	// SentBytes and ReceivedBytes are of streams and datagrams, headers of ours included.
	SentBytes, ReceivedBytes uint64
	Resent                   uint64 // contributions to the switch that were sent again
	Injected                 uint64 // datagrams lost on purpose
	Dropped                  uint64 // results from the switch that came again, or that nobody waited for
	Refused                  uint64 // datagrams from the switch's address that are not the switch's: malformed, or with a wrong tag
}

// uplinkCounters are of all uplinks of an engine.
type uplinkCounters struct{ sent, received, injected, refused, dropped, resent atomic.Uint64 }

// scatterBox hands the lane's counters to other goroutines.
type scatterBox struct{ switched, direct, resumed atomic.Uint64 }

func (b *scatterBox) store(s reducescatter.Stats) {
	b.switched.Store(s.Switched)
	b.direct.Store(s.Direct)
	b.resumed.Store(s.Resumed)
}

func (b *scatterBox) load() reducescatter.Stats {
	return reducescatter.Stats{Switched: b.switched.Load(), Direct: b.direct.Load(), Resumed: b.resumed.Load()}
}
