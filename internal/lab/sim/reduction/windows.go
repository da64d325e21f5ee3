package reduction

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/baseline"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
)

// InWindows is a Reduce-Scatter and an Allgather of the same ranks and shards at once, both cut as NCCL
// hands them to the plugin: Config.Windows parts of a shard, one shard after another, and
// Config.InFlight of them at a time.
type InWindows struct {
	Config
	// Late is how much later the Reduce-Scatter begins; negative: the Allgather does.
	Late Time
	// Strangers says that the two know nothing of each other on the sending link.
	Strangers bool
	Ring      network.CPU // what packets cost where NCCL's rings run
}

// creditChunks is the window of the Allgather: so many chunks may be under way to a receiver.
const creditChunks = 128

// InWindowsResult says when each was done at all ranks, from the beginning of the first.
type InWindowsResult struct {
	Allgather, Reduction Time
	Repaired             uint64 // chunks and contributions that were sent again
	Events, Hash         uint64
}

// Both is when both were done.
func (r *InWindowsResult) Both() Time { return max(r.Allgather, r.Reduction) }

// Run runs both. Every byte is compared.
func (w InWindows) Run() (InWindowsResult, error) {
	var r InWindowsResult
	c := w.Config
	hosts := c.Net.Tree.Hosts
	c.Tracks = innetwork.TracksFor(hosts)
	c.Net.MTU = c.Chunk + network.Header
	n, err := network.New(c.Net, c.Seed)
	if err != nil {
		return r, err
	}
	if !w.Strangers {
		words := make([]sendlink.Words, hosts)
		c.Link = func(host int) fabric.Link { return sendlink.New(&words[host], n.Now) }
	}
	j, err := New(n.Share(0), c)
	if err != nil {
		return r, err
	}
	s := w.allgather(&j.cfg)
	var g *sim.Job
	if w.Late < 0 {
		j.Start()
	} else {
		g = s.On(n.Share(0))
	}
	for late := max(w.Late, -w.Late); n.Now() < late && n.Step(); {
	}
	if w.Late < 0 {
		g = s.On(n.Share(0))
	} else {
		j.Start()
	}
	for g.Step() && j.err == nil { // until nothing is left to happen
	}
	gathered := g.Finish()
	for !j.Done() && n.Step() {
	}
	if !j.Done() {
		j.fail(j.hang())
	}
	for _, s := range gathered.Spans {
		r.Allgather = max(r.Allgather, s.To)
	}
	reduced := j.Result()
	r.Reduction = reduced.Time + j.begun
	r.Repaired = gathered.Stats.Repaired + reduced.Resent
	r.Events, r.Hash = n.Events(), n.Hash()
	return r, errors.Join(gathered.Err, j.err)
}

// allgather is the scenario of the Allgather: what of a window lies in a shard is a Broadcast.
func (w *InWindows) allgather(c *Config) sim.Scenario {
	s := sim.Cluster(c.Net, multicast.Op{}, 0)
	s.Link, s.Depth, s.Core.Window, s.Seed, s.Skew = c.Link, c.InFlight, creditChunks, c.Seed, c.Skew
	s.Core.Chunk, s.PacketBytes, s.Burst = c.Chunk, c.Chunk, 8
	for part := range c.Ranks * c.Windows {
		op := multicast.Op{Collective: wire.Broadcast, Root: part / c.Windows, Bytes: c.Bytes / c.Windows}
		s.Ops = append(s.Ops, sim.Op{Op: op, Whole: c.Ranks * c.Bytes})
	}
	return s
}

// Rings runs NCCL's Ring for both at once on the same links.
func (w InWindows) Rings() (Time, error) {
	net := w.Net
	net.CPU, net.MTU = w.Ring, w.Chunk+network.Header
	r, err := baseline.Run(baseline.Config{
		Net: net, Seed: w.Seed, Algorithm: baseline.RingRing, Bytes: w.Bytes, Packet: w.Chunk,
	})
	return r.Time, err
}
