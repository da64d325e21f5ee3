package search

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Multicast is internal/protocol/multicast over internal/lab/sim.
var Multicast = &Kind[sim.Scenario]{
	Title: "the multicast protocol",
	Flags: " --multicast",
	Random: func(seed uint64) sim.Scenario {
		s := sim.Random(seed)
		s.MaxEvents = 0 // Run fills it in
		if seed%2 == 0 {
			narrow(&s)
		}
		return s
	},
	Run: func(s *sim.Scenario) Outcome {
		bounded := *s
		bounded.MaxEvents = sim.MaxEvents
		strict := s.Calm && s.Net.Depth > 0
		bounded.Trace = bounded.Trace || strict
		r := bounded.Run()
		if r.Err == nil && strict {
			r.Err = laws(&r)
		}
		return Outcome{
			Err: r.Err, Ops: r.Whole(), Ranks: r.Ops, Events: int(r.Events), Bytes: int(r.Bytes), Hash: r.Hash,
			Text: func() string { return r.String() },
		}
	},
	Fit: fitMulticast,
}

// Bounds of what may be run, within those of sim.Random: beyond them a run
// would count as a hang, or its network as broken.
const (
	mostChunks  = 60_000 // delivered, beside the one that an operation has at least
	leastQueue  = 16 << 10
	leastCutoff = 200 * time.Microsecond
)

// fitMulticast mends what names a rank that is gone.
func fitMulticast(s *sim.Scenario) bool {
	c := &s.Core
	c.Size, c.Chunk, c.Chains, c.Subgroups = max(c.Size, 1), max(c.Chunk, 1), max(c.Chains, 1), max(c.Subgroups, 1)
	s.Depth, s.Burst, s.MaxEvents = max(s.Depth, 1), max(s.Burst, 1), 0
	if c.Lossless {
		s.Slots = max(s.Slots, 1)
	}
	chunks := 0
	for i := range s.Ops {
		o := &s.Ops[i]
		if o.Collective < wire.Barrier || o.Collective > wire.Allgather {
			return false
		}
		o.Root = min(o.Root, c.Size-1)
		copies := c.Size
		if o.Collective == wire.Allgather {
			copies *= c.Size
		}
		chunks += o.Bytes / c.Chunk * copies
	}
	if c.Check() != nil {
		c.Ring = nil // a smaller one is of no use, and nothing else is wrong here
	}
	s.Crashes = slices.DeleteFunc(s.Crashes, func(x sim.Crash) bool { return x.Rank >= c.Size })
	for i := range s.Crashes {
		s.Crashes[i].Restart = s.Crashes[i].Restart && c.Size > 1
	}
	last := len(s.Ops) - 1
	switch {
	case last < 0, s.Leave && (!s.Ops[last].Sync || s.Ops[last].Collective != wire.Barrier),
		s.Calm &&
			(s.Skew != 0 || c.Cutoff != time.Second || c.Reorder != 10*time.Millisecond || s.Net.Depth > 0 && !isNarrow(s)),
		s.Calm && (s.Forged > 0 || len(s.Net.Faults.Dead) > 0), s.Net.GiveUp < sim.GiveUp &&
			slices.ContainsFunc(s.Net.Faults.Dead, func(x network.Dead) bool { return x.Unicast }),
		s.Connection > 0 && (s.Connection < sim.LeastConnection || !s.SparesMessages()),
		c.Rank != 0, c.Arena < c.Eager, c.Cutoff < leastCutoff, s.Depth > collective.MaxInFlight, chunks > mostChunks:
		return false
	}
	return fitNetwork(&s.Net, c.Size)
}

// fitNetwork makes the network one of so many hosts.
func fitNetwork(n *network.Config, hosts int) bool {
	n.Tree.Hosts = hosts
	f := &n.Faults
	f.Pauses = slices.DeleteFunc(f.Pauses, func(x network.Pause) bool { return x.Node >= hosts })
	gone := func(x network.Slow) bool { return x.Node >= hosts }
	f.Slow, f.SlowNIC = slices.DeleteFunc(f.Slow, gone), slices.DeleteFunc(f.SlowNIC, gone)
	for i := range f.Partitions {
		p := &f.Partitions[i]
		p.Hosts = slices.DeleteFunc(p.Hosts, func(host int) bool { return host >= hosts })
	}
	f.Partitions = slices.DeleteFunc(f.Partitions, func(x network.Partition) bool { return len(x.Hosts) == 0 })
	f.Lossy = slices.DeleteFunc(f.Lossy, func(x network.LossyLink) bool { return x.A >= hosts })
	f.Dead = slices.DeleteFunc(f.Dead, func(x network.Dead) bool { return x.From >= hosts || x.To >= hosts })
	tree, err := fattree.New(n.Tree)
	if err != nil {
		return false
	}
	for i := range f.Lossy {
		f.Lossy[i].B = tree.Leaf(f.Lossy[i].A, 0)
	}
	if n.Gbps < 1 || n.Queue != 0 && n.Queue < leastQueue {
		return false
	}
	_, err = network.New(*n, 0)
	return err == nil
}
