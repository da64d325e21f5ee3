package figures

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/simnet/baseline"
	"github.com/torch-mcast/torch-mcast/internal/simnet/network"
	"github.com/torch-mcast/torch-mcast/internal/simnet/reduction"
)

// Pair is an Allgather and a Reduce-Scatter of shards of some bytes, posted at
// once on the same NICs: both rings, and ours with in-network reduction.
type Pair struct {
	Bytes     int
	Net       network.Config
	Packet    int // payload bytes of a packet; 0: 4096
	Train     int // packets that travel as one; 0: 1
	Chains    int // M; 0: 1
	Subgroups int // G; 0: 1
	Seed      uint64
}

// PairOutcome says how long each took, in microseconds.
type PairOutcome struct {
	Nodes  int     `json:"nodes"`
	Bytes  int     `json:"bytes"`
	Chains int     `json:"chains"`
	Gather float64 `json:"allgather_alone_us"`
	Reduce float64 `json:"reducescatter_alone_us"`
	Both   float64 `json:"both_us"`
	// Of both together, when each was done.
	GatherOfBoth float64 `json:"allgather_together_us"`
	ReduceOfBoth float64 `json:"reducescatter_together_us"`
	Rings        float64 `json:"rings_us"` // ring and ring, together
	S            float64 `json:"s"`        // Rings to Both
	Law          float64 `json:"law"`      // 2 - 2/P
	Events       uint64  `json:"events"`   // of all four runs
	Hash         string  `json:"hash"`     // of the run of both
	Seed         uint64  `json:"seed"`
	Wall         float64 `json:"wall_s"`
}

// Run runs the four.
func (p Pair) Run() (PairOutcome, error) {
	if p.Packet == 0 {
		p.Packet = packetBytes
	}
	p.Train, p.Chains, p.Subgroups = max(1, p.Train), max(1, p.Chains), max(1, p.Subgroups)
	p.Net.MTU = p.Packet + network.Header
	hosts := p.Net.Tree.Hosts
	o := PairOutcome{Nodes: hosts, Bytes: p.Bytes, Chains: p.Chains, Seed: p.Seed, Law: 2 - 2/float64(hosts)}
	began := time.Now()
	gather, err := p.gather().Run(nil)
	if err != nil {
		return o, err
	}
	o.Gather = gather.TimeUS
	reduce, err := p.reduce().Run()
	if err != nil {
		return o, fmt.Errorf("in-network Reduce-Scatter on %d nodes: %w", hosts, err)
	}
	o.Reduce = micros(reduce.Time)
	rings, err := baseline.Run(baseline.Config{Net: p.Net, Seed: p.Seed, Algorithm: baseline.RingRing, Bytes: p.Bytes, Packet: p.Packet, Train: p.Train})
	if err != nil {
		return o, fmt.Errorf("rings on %d nodes: %w", hosts, err)
	}
	o.Rings = micros(rings.Time)
	o.Events = gather.Events + reduce.Events + rings.Events
	if err := p.both(&o); err != nil {
		return o, fmt.Errorf("both together on %d nodes: %w", hosts, err)
	}
	o.S = o.Rings / o.Both
	o.Wall = time.Since(began).Seconds()
	return o, nil
}

func (p *Pair) gather() Case {
	return Case{
		Collective: "allgather", Algorithm: Multicast, Bytes: p.Bytes, Net: p.Net, Packet: p.Packet, Train: p.Train,
		Chains: p.Chains, Subgroups: p.Subgroups, Seed: p.Seed,
	}
}

func (p *Pair) reduce() reduction.Config {
	return reduction.Config{Net: p.Net, Seed: p.Seed, Bytes: p.Bytes, Chunk: p.Packet * p.Train}
}

// both runs ours and the in-network Reduce-Scatter on one network.
func (p *Pair) both(o *PairOutcome) error {
	net, err := network.New(p.Net, p.Seed)
	if err != nil {
		return err
	}
	reduce, err := reduction.New(net, p.reduce())
	if err != nil {
		return err
	}
	c := p.gather()
	c.fill()
	s := c.scenario()
	gather := s.On(net, func(host int, n network.Node) {
		net.Attach(host, &reduction.Shared{Reduction: reduce.Host(host), Other: n})
	})
	reduce.Start()
	for gather.Step() && reduce.Err() == nil { // to the last event
	}
	g, r := gather.Finish(), reduce.Result()
	if err := errors.Join(g.Err, reduce.Err()); err != nil {
		return err
	}
	if !reduce.Done() {
		return errors.New("the Reduce-Scatter hangs")
	}
	o.GatherOfBoth, o.ReduceOfBoth = micros(g.Spans[0].To), micros(r.Time)
	o.Both = max(o.GatherOfBoth, o.ReduceOfBoth)
	o.Events += g.Events
	o.Hash = fmt.Sprintf("%016x", g.Hash)
	return nil
}
