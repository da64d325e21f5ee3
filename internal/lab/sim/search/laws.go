package search

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// What a run that delivers every byte can still get wrong shows only where
// nothing else disturbs it: a root that sends out of turn, or further than the
// slowest receiver has room, costs repairs at worst. So some of the calm
// scenarios are narrow: queues hold one window, all operations are large and
// one is in flight at a time, and some ranks pause.

// narrow makes a calm scenario so, if it can be.
func narrow(s *sim.Scenario) {
	if !s.Calm || s.Core.Lossless || s.Core.Window == 0 {
		return
	}
	s.Depth, s.Core.Eager, s.Core.EagerChunks, s.Net.Depth = 1, 0, 0, s.Core.Window
	for i := range min(s.Core.Size, 4) {
		p := network.Pause{
			Node: i, At: time.Duration(i*i) * 200 * time.Microsecond, For: time.Duration(1+i) * time.Millisecond,
		}
		s.Net.Faults.Pauses = append(s.Net.Faults.Pauses, p)
	}
}

// isNarrow reports whether a calm scenario's queues must suffice.
func isNarrow(s *sim.Scenario) bool {
	return !s.Core.Lossless && s.Depth == 1 && s.Core.Eager == 0 && s.Core.EagerChunks == 0 && s.Core.Window > 0 &&
		s.Net.Depth >= s.Core.Window
}

// laws returns how a run of a narrow scenario has broken the laws of traffic, or nil.
func laws(r *sim.Result) error {
	if r.Overflow > 0 {
		return fmt.Errorf("%d datagrams found a queue full that holds a window of %d", r.Overflow, r.Scenario.Core.Window)
	}
	sending := map[int][]sim.Span{} // by operation
	for _, m := range r.Marks {
		if m.Phase == sim.Multicast && r.Scenario.Ops[m.Op].Collective != wire.Broadcast {
			sending[m.Op] = append(sending[m.Op], m.Span)
		}
	}
	for op := range r.Scenario.Ops {
		if n := atOnce(sending[op]); n > r.Scenario.Core.Chains {
			return fmt.Errorf("%d roots of operation %d (%v) send at the same time; chains: %d", n, op, r.Scenario.Ops[op].Op,
				r.Scenario.Core.Chains)
		}
	}
	return nil
}

// atOnce returns how many spans overlap at most. One may begin where another ends.
func atOnce(spans []sim.Span) (most int) {
	type edge struct {
		at   multicast.Time
		step int
	}
	var edges []edge
	for _, s := range spans {
		if s.From+1 < s.To { // what takes no time is in nobody's way; it is 1 ns at the start
			edges = append(edges, edge{s.From, 1}, edge{s.To, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step)) })
	n := 0
	for _, e := range edges {
		n += e.step
		most = max(most, n)
	}
	return most
}
