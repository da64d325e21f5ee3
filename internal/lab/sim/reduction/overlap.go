package reduction

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/baseline"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// What an Overlap takes that does not say how many chains it has.
const (
	MostChains    = 64
	DefaultWindow = 4096 // packets
)

// Overlap is a Reduce-Scatter and an Allgather of the same ranks and shards, at
// once on the same NICs (Khalilov et al., SC24, appendix B). N is Config.Bytes.
type Overlap struct {
	Config
	// Chains, Subgroups and Window are the Allgather's. 0 chains: one a rank, up
	// to MostChains, and DefaultWindow where Window is 0, too: of what M chains
	// send in a turn a sender receives but M-1 parts, which costs where turns are
	// few, and what M chains send beyond a link's rate waits where results do.
	// 0 subgroups: 1.
	Chains, Subgroups int
	// Window is how many packets of 4 KiB may be under way to a receiver. With
	// chains given, 0: as many as Net.Depth, or any number.
	Window int
	// Train is how many packets of 4 KiB travel as one in the Allgather and in the ring; 0: 1.
	Train int
}

// OverlapResult is how long it took. All times are from the start until the last rank is done.
type OverlapResult struct {
	Reduction, Allgather Time             // each alone
	Both                 Time             // at once, until the later one is done
	Ring                 Time             // ring Reduce-Scatter and ring Allgather, at once
	S                    float64          // Ring over Both; the paper has 2 - 2/P
	Together             Result           // of the Reduce-Scatter, at once with the Allgather
	Core                 multicast.Config // of the Allgather: chains, subgroups, window in chunks
}

// Run runs both alone, both at once, and both as rings.
func (o Overlap) Run() (OverlapResult, error) {
	var r OverlapResult
	if hosts := o.Net.Tree.Hosts; o.Ranks != 0 && o.Ranks != hosts {
		return r, fmt.Errorf("reduction: an overlap of %d ranks on %d hosts: want all, or 0", o.Ranks, hosts)
	}
	alone, err := o.Config.Run()
	if err != nil {
		return r, fmt.Errorf("the Reduce-Scatter alone: %w", err)
	}
	r.Reduction = alone.Time
	s := o.allgather()
	gather := s.Run()
	if gather.Err != nil {
		return r, fmt.Errorf("the Allgather alone: %w", gather.Err)
	}
	r.Allgather, r.Core = gather.Spans[0].To, s.Core
	if r.Both, r.Together, err = o.both(); err != nil {
		return r, fmt.Errorf("both at once: %w", err)
	}
	ring, err := baseline.Run(baseline.Config{
		Net: o.Net, Seed: o.Seed, Algorithm: baseline.RingRing, Bytes: o.Bytes, Train: o.Train,
	})
	if err != nil {
		return r, fmt.Errorf("the rings: %w", err)
	}
	r.Ring = ring.Time
	r.S = float64(r.Ring) / float64(r.Both)
	return r, nil
}

// allgather is the scenario of the Allgather.
func (o *Overlap) allgather() sim.Scenario {
	s := sim.Cluster(o.Net, multicast.Op{Collective: wire.Allgather, Bytes: o.Bytes}, 1)
	s.Seed = o.Seed
	window := o.Window
	if s.Core.Chains = o.Chains; o.Chains == 0 {
		s.Core.Chains = min(s.Core.Size, MostChains)
		if window == 0 {
			window = DefaultWindow
		}
	}
	if window > 0 {
		s.Core.Window = window
	}
	s.Core.Subgroups = max(1, o.Subgroups)
	if o.Train > 1 {
		s.Coarse(o.Train)
	}
	return s
}

// both runs the two at once, and returns when the later one was done.
func (o *Overlap) both() (Time, Result, error) {
	n, err := network.New(o.Net, o.Seed)
	if err != nil {
		return 0, Result{}, err
	}
	j, err := New(n.Share(0), o.Config)
	if err != nil {
		return 0, Result{}, err
	}
	s := o.allgather()
	g := s.On(n.Share(0))
	j.Start()
	stepping := true
	for stepping && j.err == nil { // until nothing is left to happen
		stepping = g.Step()
	}
	gathered := g.Finish()
	for stepping = true; stepping && !j.Done(); { // the Allgather does not wait for the other
		stepping = n.Step()
	}
	reduced := j.Result()
	if !j.Done() {
		j.fail(j.hang())
	}
	return max(gathered.Spans[0].To, reduced.Time), reduced, errors.Join(gathered.Err, j.err)
}
