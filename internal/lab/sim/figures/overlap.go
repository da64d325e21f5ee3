package figures

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/reduction"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Pair is an Allgather and a Reduce-Scatter of shards of some bytes, posted at
// once on the same NICs: both rings, and ours with in-network reduction.
// Packets are of 4 KiB.
type Pair struct {
	Bytes     int
	Net       network.Config
	Train     int // packets that travel as one; 0: 1
	Chains    int // M; 0: one a rank up to 64, and a window of 4096 packets if none is given
	Subgroups int // G; 0: 1
	Window    int // of the Allgather, in packets; 0 with chains given: no limit
	Seed      uint64
}

// PairOutcome says how long each took, in microseconds.
type PairOutcome struct {
	Nodes int `json:"nodes"`
	Bytes int `json:"bytes"`
	// Chains, Subgroups and Window are those of the Allgather, in effect.
	Chains    int `json:"chains"`
	Subgroups int `json:"subgroups"`
	Window    int `json:"window_packets,omitempty"` // 0: no limit
	Train     int `json:"packets_a_train"`

	Gather float64 `json:"allgather_alone_us"`
	Reduce float64 `json:"reducescatter_alone_us"`
	Both   float64 `json:"both_us"`
	// ReduceOfBoth is when the Reduce-Scatter was done, at once with the Allgather.
	ReduceOfBoth float64 `json:"reducescatter_together_us"`
	Rings        float64 `json:"rings_us"` // ring and ring, at once
	S            float64 `json:"s"`        // Rings to Both
	Law          float64 `json:"law"`      // 2 - 2/P
	Sent         uint64  `json:"sent_bytes"`
	Events       uint64  `json:"events"` // of the run of both
	Hash         string  `json:"hash"`   // of the run of both
	Seed         uint64  `json:"seed"`
	Wall         float64 `json:"wall_s"` // of all four runs
}

// Run runs each alone, both at once, and both as rings.
func (p Pair) Run() (PairOutcome, error) {
	hosts := p.Net.Tree.Hosts
	o := PairOutcome{Nodes: hosts, Bytes: p.Bytes, Seed: p.Seed, Law: 2 - 2/float64(hosts)}
	began := time.Now()
	train := max(1, p.Train)
	r, err := reduction.Overlap{
		Config: reduction.Config{Net: p.Net, Seed: p.Seed, Bytes: p.Bytes, Chunk: packetBytes * train},
		Chains: p.Chains, Window: p.Window, Subgroups: p.Subgroups, Train: train,
	}.Run()
	if err != nil {
		return o, fmt.Errorf("overlap of %d bytes on %d nodes: %w", p.Bytes, hosts, err)
	}
	o.Train, o.Window = train, r.Core.Window*train
	o.Chains, o.Subgroups = inEffect(&r.Core, multicast.Op{Collective: wire.Allgather, Bytes: p.Bytes})
	o.Gather, o.Reduce, o.Both, o.Rings = micros(r.Allgather), micros(r.Reduction), micros(r.Both), micros(r.Ring)
	o.ReduceOfBoth, o.S = micros(r.Together.Time), r.S
	o.Sent, o.Events, o.Hash = r.Together.Sent, r.Together.Events, fmt.Sprintf("%016x", r.Together.Hash)
	o.Wall = time.Since(began).Seconds()
	return o, nil
}
