package baseline

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// run is a run in progress.
type run struct {
	Config
	net        *network.Network
	hosts      []*host
	streams    []stream
	tree       int          // Gleam's multicast tree
	ahead      network.Time // what a NIC queues
	unfinished int
	result     Result
	err        error
}

// Run runs a collective to its end, until nothing is in flight. An error says
// what in Config is not allowed, or which rank sent, received or missed what
// it should not have.
func Run(c Config) (Result, error) {
	r, err := prepare(c)
	if err != nil {
		return Result{}, err
	}
	return r.run()
}

// prepare builds the network and the hosts; nothing is sent yet.
func prepare(c Config) (*run, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Net.MTU == 0 {
		c.Net.MTU = c.Packet + network.Header
	}
	n, err := network.New(c.Net, c.Seed)
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, net: n}
	r.setTimes()
	r.setStreams()
	r.setHosts()
	if c.Algorithm == BroadcastGleam {
		r.attachAggregators()
	}
	return r, nil
}

func (r *run) run() (Result, error) {
	for s := range r.streams {
		for _, h := range r.hosts {
			r.streams[s].schedule.begin(h)
		}
	}
	n := r.net
	for r.err == nil && n.Step() {
	}
	if r.err == nil {
		r.err = r.complete()
	}
	r.result.Ports, r.result.Events, r.result.Hash = n.Counters(), n.Events(), n.Hash()
	if r.result.Time > 0 {
		r.result.Goodput = float64(r.result.Payload) * 8 / float64(r.result.Time)
	}
	return r.result, r.err
}

func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// setTimes sets what follows from the longest path: a full packet there,
// stored and forwarded at every hop, and its ACK back.
func (r *run) setTimes() {
	// The conversions keep products from being fused with sums, so that all
	// machines round alike.
	byteTime := 8 / r.Net.Gbps // ns
	up := byteTime
	if r.Net.UplinkGbps != 0 {
		up = 8 / r.Net.UplinkGbps
	}
	hops := 2 * r.net.Tree().Levels()
	wire := float64(r.Packet + network.Header)
	both := wire + network.Header // the packet and its ACK
	packet := float64(wire * byteTime)
	trip := network.Time(float64(2*both*byteTime)+float64(float64(hops-2)*both*up)) + network.Time(2*hops)*r.Net.Latency +
		r.Net.Cost + network.Time(r.Net.CostPerByte*float64(r.Packet))
	if r.Window == 0 {
		// Two more are queued in the NIC.
		r.Window = int(float64(trip)/packet) + 3
	}
	if r.RTO == 0 {
		r.RTO = max(minRTO, 4*trip, 2*network.Time(float64(r.Window)*packet))
	}
	r.ahead = network.Time(2 * packet)
	if r.Transport == Reliable {
		// Fewer Wakes. More would let rails get out of step, and the reliable
		// class keeps packets between two hosts in order over all rails.
		r.ahead = network.Time(2 * packet * float64(max(8, r.Train)))
	}
}

// setStreams sets the collectives and what hosts hold at first.
func (r *run) setStreams() {
	hosts := r.Net.Tree.Hosts
	if r.Algorithm == AllgatherDoubling {
		r.Segment = r.Bytes // a message has many shards
	}
	count := 1
	if r.Algorithm == RingRing {
		count = 2
	}
	r.streams = make([]stream, count)
	r.result.Streams = make([]network.Time, count)
	for i := range r.streams {
		s := &r.streams[i]
		s.shards, s.segments = hosts, (r.Bytes-1)/r.Segment+1
		s.bytes, s.segment = r.Bytes, r.Segment
		r.result.Payload += int64(r.Bytes) * int64(hosts-1)
		switch r.Algorithm {
		case AllgatherLinear:
			s.schedule = linear{s}
		case AllgatherDoubling:
			s.schedule = &doubling{stream: s, step: make([]int, hosts), come: make([]uint, hosts)}
		case AllgatherRing, ReduceScatterRing, RingRing:
			s.schedule = ring{stream: s, number: i}
			if s.reduce = r.Algorithm == ReduceScatterRing || r.Algorithm == RingRing && i == 0; s.reduce {
				s.schedule = ring{stream: s, number: i, shift: 1}
			}
		default:
			s.shards = 1
			s.schedule = r.broadcast(s)
			r.result.Payload = int64(r.Bytes)
		}
	}
}

func (r *run) broadcast(s *stream) schedule {
	t := tree{stream: s, root: r.Root, hosts: r.Net.Tree.Hosts}
	switch r.Algorithm {
	case BroadcastGleam:
		return gleam{t}
	case BroadcastChain:
		t.children = chain
	case BroadcastBinary:
		t.children = binary
	default:
		t.children = knomial(r.K)
	}
	return t
}

func (r *run) setHosts() {
	hosts := r.Net.Tree.Hosts
	r.result.Finish = make([]network.Time, hosts)
	r.hosts = make([]*host, hosts)
	r.unfinished = hosts
	for i := range r.hosts {
		h := &host{
			run: r, rank: int32(i), to: map[int64]*connection{}, // Config bounds it
			rails: make([]rail, r.net.Tree().Planes()), holdings: make([]holding, len(r.streams)), missing: len(r.streams),
		}
		r.hosts[i] = h
		r.net.Attach(i, h)
		for j := range r.streams {
			s := &r.streams[j]
			first, count := i*s.segments, s.segments
			if s.shards == 1 {
				first = 0
				if i != r.Root {
					count = 0
				}
			}
			hold := &h.holdings[j]
			if hold.begin(s, i, first, count); hold.missing == 0 {
				hold.done = true
				h.finish(j)
			}
		}
	}
}

// complete checks that nobody misses anything.
func (r *run) complete() error {
	if r.unfinished == 0 {
		return nil
	}
	for _, h := range r.hosts {
		for i := range h.holdings {
			if hold := &h.holdings[i]; hold.missing > 0 {
				return fmt.Errorf("baseline: nothing is in flight at %v, but rank %d misses %d of %d pieces (%d ranks are not "+
					"complete)",
					r.net.Now(), h.rank, hold.missing, r.streams[i].pieces(), r.unfinished)
			}
		}
	}
	return nil
}
