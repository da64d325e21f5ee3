package figures

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/baseline"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/trace"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Multicast is the algorithm that is ours.
const Multicast = "mcast"

// Times of the protocol in a Case that sets none: the ones that ship.
const (
	Cutoff  = 2 * time.Millisecond
	Reorder = 200 * time.Microsecond
)

const packetBytes = sim.PacketBytes // payload of a packet by default

// Case is one collective by one algorithm over one network.
type Case struct {
	Collective string // allgather or broadcast
	Algorithm  string // Multicast, or one of Algorithms
	Bytes      int    // of a rank's shard
	Net        network.Config
	Packet     int           // payload bytes of a packet; 0: 4096
	Chains     int           // M; 0: 1
	Subgroups  int           // G; 0: 1
	Window     int           // packets under way to a receiver (of a baseline: on a connection), 0: no limit
	Train      int           // packets that travel as one; 0: 1
	Iterations int           // one after the other; 0: 1
	Cutoff     time.Duration // 0: Cutoff
	Reorder    time.Duration // 0: Reorder; below 0: none
	// Segment: of a baseline: what a host passes on at once; 0: a packet or train; below 0: a shard or message
	Segment   int
	Transport baseline.Transport
	Seed      uint64
	Trace     bool
}

// baselines are the algorithms that are not ours, by collective.
var baselines = map[string][]struct {
	name string
	baseline.Algorithm
	k int
}{
	"allgather": {
		{"ring", baseline.AllgatherRing, 0}, {"linear", baseline.AllgatherLinear, 0},
		{"doubling", baseline.AllgatherDoubling, 0},
	},
	"broadcast": {
		{"binomial", baseline.BroadcastKnomial, 2}, {"knomial", baseline.BroadcastKnomial, 4},
		{"binary", baseline.BroadcastBinary, 0},
		{"chain", baseline.BroadcastChain, 0}, {"gleam", baseline.BroadcastGleam, 0},
	},
}

// Algorithms returns what can run a collective, allgather or broadcast.
func Algorithms(collective string) []string {
	names := []string{Multicast}
	for _, b := range baselines[collective] {
		names = append(names, b.name)
	}
	return names
}

// Outcome is what a Case came to. Traffic is counted on the wire, with 64 bytes
// a packet for headers, over all iterations; times are of one.
type Outcome struct {
	Collective string `json:"collective"`
	Algorithm  string `json:"algorithm"`
	Nodes      int    `json:"nodes"`
	Bytes      int    `json:"bytes"`
	Chains     int    `json:"chains,omitempty"` // in effect, as are subgroups
	Subgroups  int    `json:"subgroups,omitempty"`
	Train      int    `json:"packets_a_train,omitempty"`
	Iterations int    `json:"iterations"`

	TimeUS  float64 `json:"time_us"`              // mean, from the first post to the last completion
	Goodput float64 `json:"goodput_gbps"`         // payload that a rank receives over that time
	Sent    uint64  `json:"sent_bytes"`           // by the host that sends most
	Links   uint64  `json:"link_bytes"`           // over all links
	Switch  uint64  `json:"switch_bytes"`         // received and sent by all switch ports, as port counters tell
	Core    uint64  `json:"between_switches"`     // between switches
	Busiest uint64  `json:"busiest_link_bytes"`   // on the busiest link between switches
	Lost    uint64  `json:"packets_lost"`         // by the network: loss, damage, full queues
	Again   uint64  `json:"packets_sent_again"`   // repairs, by whole chunks, and retransmissions
	Late    uint64  `json:"datagrams_not_placed"` // ours: duplicates and late ones
	Full    uint64  `json:"receive_queue_full"`   // packets that found one full
	Share   phases  `json:"phases,omitzero"`      // ours, with Trace
	Events  uint64  `json:"events"`
	Hash    string  `json:"hash"` // of all events: same seed, same hash
	Seed    uint64  `json:"seed"`
	Wall    float64 `json:"wall_s"`

	Spans []trace.Span `json:"-"` // with Trace
}

// phases are the parts of the time of an operation at a rank, in microseconds, means over ranks.
type phases struct {
	Barrier   float64 `json:"barrier_us"`
	Multicast float64 `json:"multicast_us"`
	Handshake float64 `json:"handshake_us"`
}

// fill sets what was left open.
func (c *Case) fill() {
	for _, d := range []*int{&c.Chains, &c.Subgroups, &c.Train, &c.Iterations} {
		*d = max(1, *d)
	}
	if c.Packet == 0 {
		c.Packet = packetBytes
	}
	if c.Cutoff == 0 {
		c.Cutoff = Cutoff
	}
	if c.Reorder == 0 {
		c.Reorder = Reorder
	}
	c.Net.MTU = c.Packet + network.Header
}

// Run runs the case. progress, if not nil, hears now and then how much is done.
func (c Case) Run(progress func(done, total int)) (Outcome, error) {
	c.fill()
	o := Outcome{
		Collective: c.Collective, Algorithm: c.Algorithm, Nodes: c.Net.Tree.Hosts, Bytes: c.Bytes, Train: c.Train,
		Iterations: c.Iterations, Seed: c.Seed,
	}
	began := time.Now()
	run := c.multicast
	if c.Algorithm != Multicast {
		run = c.baseline
	}
	if err := run(&o, progress); err != nil {
		return o, fmt.Errorf("%s of %d bytes by %s on %d nodes: %w", c.Collective, c.Bytes, c.Algorithm, o.Nodes, err)
	}
	o.Wall = time.Since(began).Seconds()
	received := float64(c.Bytes)
	if c.Collective == "allgather" {
		received *= float64(o.Nodes - 1)
	}
	if o.TimeUS > 0 {
		o.Goodput = received * 8 / o.TimeUS / 1e3
	}
	return o, nil
}

// scenario is what simnet runs for the case.
func (c *Case) scenario() sim.Scenario {
	op := multicast.Op{Collective: wire.Allgather, Bytes: c.Bytes}
	if c.Collective == "broadcast" {
		op.Collective = wire.Broadcast
	}
	s := sim.Cluster(c.Net, op, c.Iterations)
	s.Seed, s.Depth, s.Trace, s.PacketBytes = c.Seed, 1, c.Trace, c.Packet
	s.Core.Chunk, s.Core.Chains, s.Core.Subgroups = c.Packet, c.Chains, c.Subgroups
	s.Core.Cutoff, s.Core.Reorder = c.Cutoff, max(0, c.Reorder)
	if c.Window > 0 {
		s.Core.Window = c.Window
	}
	s.Coarse(c.Train)
	return s
}

// inEffect returns how many chains and subgroups an operation makes use of: a
// chain has a rank at least, and a place in the window, a subgroup a chunk.
func inEffect(c *multicast.Config, o multicast.Op) (chains, subgroups int) {
	chains = min(c.Chains, c.Size)
	if c.Window > 0 {
		chains = min(chains, c.Window)
	}
	if o.Collective == wire.Broadcast {
		chains = 1
	}
	return chains, min(c.Subgroups, max(1, (o.Bytes+c.Chunk-1)/c.Chunk))
}

// multicast runs our protocol.
func (c *Case) multicast(o *Outcome, progress func(done, total int)) error {
	s := c.scenario()
	o.Chains, o.Subgroups = inEffect(&s.Core, s.Ops[0].Op)
	net, err := network.New(c.Net, c.Seed)
	if err != nil {
		return err
	}
	last := o.Nodes - 1 // a host that receives in every collective
	expected := c.Iterations * max(1, (c.Bytes+s.Core.Chunk-1)/s.Core.Chunk)
	if c.Collective == "allgather" {
		expected *= last
	}
	j := s.On(net.Share(0))
	for j.Step() {
		if progress != nil && net.Events()%(1<<18) == 0 {
			progress(min(int(net.Host(last).Received), expected), expected)
		}
	}
	r := j.Finish()
	if r.Err != nil {
		return r.Err
	}
	var total time.Duration
	for _, span := range r.Spans {
		total += span.To - span.From
	}
	o.TimeUS = micros(total) / float64(len(r.Spans))
	o.Again = r.Stats.Repaired * uint64(c.Train)
	o.Late, o.Full = r.Stats.Dropped, uint64(r.Overflow)
	o.Events, o.Hash = r.Events, fmt.Sprintf("%016x", r.Hash)
	o.traffic(net.Tree(), net.Counters())
	o.marks(&r)
	return nil
}

// marks turns the run's marks into spans and mean phases: the time between barrier and handshake is multicast.
func (o *Outcome) marks(r *sim.Result) {
	if len(r.Marks) == 0 {
		return
	}
	ranks := float64(r.Scenario.Core.Size * len(r.Scenario.Ops))
	for i := range r.Marks {
		m := &r.Marks[i]
		o.Spans = append(o.Spans, trace.Span{Rank: m.Rank, What: m.Phase.String(), Op: m.Op, From: m.From, To: m.To})
		switch m.Phase {
		case sim.Barrier:
			o.Share.Barrier += micros(m.To-m.From) / ranks
			o.Share.Multicast -= micros(m.To) / ranks
		case sim.Handshake:
			o.Share.Handshake += micros(m.To-m.From) / ranks
			o.Share.Multicast += micros(m.From) / ranks
		}
	}
}

// baseline runs one of the others.
func (c *Case) baseline(o *Outcome, _ func(done, total int)) error {
	if c.Iterations > 1 || c.Trace {
		return errors.New("several iterations, and traces, are for " + Multicast + " only")
	}
	b := baseline.Config{
		Net: c.Net, Seed: c.Seed, Bytes: c.Bytes, Packet: c.Packet, Segment: c.Segment, Transport: c.Transport,
		Train: c.Train, Window: c.Window,
	}
	for _, known := range baselines[c.Collective] {
		if known.name == c.Algorithm {
			b.Algorithm, b.K = known.Algorithm, known.k
		}
	}
	r, err := baseline.Run(b)
	if err != nil {
		return err
	}
	t, err := fattree.New(c.Net.Tree)
	if err != nil {
		return err
	}
	o.TimeUS = micros(r.Time)
	o.Again = uint64(r.Retransmitted)
	o.Events, o.Hash = r.Events, fmt.Sprintf("%016x", r.Hash)
	o.traffic(t, r.Ports)
	return nil
}

// traffic sums up the ports' counters.
func (o *Outcome) traffic(t *fattree.Tree, ports []network.Counter) {
	host := make([]uint64, t.Hosts)
	for i := range ports {
		_, bytes := ports[i].Sum()
		o.Links += bytes
		o.Lost += ports[i].Dropped + ports[i].Lost + ports[i].Corrupt
		p := &t.Ports[i]
		if p.From < t.Hosts {
			host[p.From] += bytes
			o.Sent = max(o.Sent, host[p.From])
		}
		o.Switch += bytes
		if p.Tier > 0 {
			o.Switch += bytes // sent by one, received by another
			o.Core += bytes
			o.Busiest = max(o.Busiest, bytes)
		}
	}
}
