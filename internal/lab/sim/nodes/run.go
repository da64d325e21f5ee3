package nodes

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/baseline"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/reduction"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Config is hosts with ranks, and how much they move.
type Config struct {
	Hosts, PerHost int // N and K
	Bytes          int // n, of a shard
	Radix          int // of the fat tree's switches; 0: one switch
	Gbps           float64
	Latency        network.Time
	Train          int // packets of 4 KiB that travel as one; 0: 1
	Seed           uint64
}

// Scaled returns hosts with links of 200 Gbit/s. Their latency is to a shard of so many bytes as 500 ns are to a shard
// of 512 KiB; for a larger shard it is 500 ns.
func Scaled(hosts, perHost, bytes, train int, seed uint64) Config {
	c := Config{Hosts: hosts, PerHost: perHost, Bytes: bytes, Radix: 32, Gbps: 200, Train: train, Seed: seed}
	c.Latency = network.Time(min(500, 500*bytes/(512<<10)))
	return c
}

// Result is what a run came to. Links carry headers, too.
type Result struct {
	Time     network.Time // until the last rank is done
	Out, In  uint64       // bytes that the busiest link from a host carried, and the busiest to one
	Repaired uint64       // chunks and contributions that were sent again
	Events   uint64
	Hash     uint64
}

// memory is how many times as fast as a host's link its ranks reach each other where they are flat.
const memory = 1000

// A column's Allgather has so many chains at most, as an overlap has (reduction.Overlap), and all columns'
// so many packets under way to a host: more waits in the queue to the host, and what a Reduce-Scatter
// has in its windows behind it.
const (
	mostChains = reduction.MostChains
	window     = 1024
)

// Run runs a collective by a way to its end. The error says why the configuration is wrong, or is the first violation:
// every byte or its checksum is compared, as in the packages that do the work.
func (c Config) Run(w Way, what Collective) (Result, error) {
	run := c.run
	if w == Ring {
		run = c.rings
	}
	r, err := run(w, what)
	if err != nil {
		return r, fmt.Errorf("%s of %d bytes by %s on %d hosts of %d ranks: %w", what, c.Bytes, w, c.Hosts, c.PerHost, err)
	}
	return r, nil
}

// network returns the network of a way, and how many columns there are on it.
func (c *Config) network(w Way) (net network.Config, columns int) {
	net = network.Config{
		Tree: fattree.Config{Hosts: c.Hosts, Radix: c.Radix}, Gbps: c.Gbps, Latency: c.Latency,
		MTU: sim.PacketBytes + network.Header,
	}
	if w == Nodes || w == Switch {
		return net, c.PerHost
	}
	net.Tree = fattree.Config{Hosts: c.Hosts * c.PerHost, Leaves: c.Hosts, Spines: 1, Oversubscription: float64(c.PerHost)}
	net.Gbps, net.UplinkGbps = memory*c.Gbps, c.Gbps
	return net, 1
}

// job is a collective of some columns under way.
type job interface {
	Done() bool
	Err() error
}

// run runs ours.
func (c *Config) run(w Way, what Collective) (Result, error) {
	var r Result
	cfg, columns := c.network(w)
	n, err := network.New(cfg, c.Seed)
	if err != nil {
		return r, err
	}
	var gathers []*sim.Job
	var reduces []*reduction.Job
	var direct *reduction.Direct
	var jobs []job
	if what != Allgather {
		reduce := reduction.Config{Seed: c.Seed, Bytes: c.Bytes, Chunk: sim.PacketBytes * max(1, c.Train)}
		if w == Switch {
			for k := range columns {
				j, err := reduction.New(n.Share(k), reduce)
				if err != nil {
					return r, err
				}
				reduces, jobs = append(reduces, j), append(jobs, j)
			}
		} else {
			var shares []*network.Share
			for k := range columns {
				shares = append(shares, n.Share(k))
			}
			if direct, err = reduction.NewDirect(n, shares, reduce, c.nap()); err != nil {
				return r, err
			}
			jobs = append(jobs, direct)
		}
	}
	gather := c.allgather(cfg, columns)
	if what != ReduceScatter {
		for k := range columns {
			gathers = append(gathers, gather.On(n.Share(k)))
		}
	}
	for _, j := range reduces {
		j.Start()
	}
	if direct != nil {
		direct.Start()
	}
	for _, j := range jobs {
		for !j.Done() && n.Step() {
		}
		err = errors.Join(err, j.Err())
	}
	for _, j := range gathers { // until nothing is left to happen
		for err == nil && j.Step() {
		}
	}
	for _, j := range gathers {
		done := j.Finish()
		r.Repaired += done.Stats.Repaired
		err = errors.Join(err, done.Err)
		if done.Err == nil {
			r.Time = max(r.Time, done.Spans[0].To)
		}
	}
	for _, j := range reduces {
		done := j.Result()
		r.Repaired += done.Resent
		r.Time = max(r.Time, done.Time)
	}
	if direct != nil {
		r.Time = max(r.Time, direct.Finish())
	}
	r.Events, r.Hash = n.Events(), n.Hash()
	r.count(n.Tree(), n.Counters(), w)
	return r, err
}

// allgather is the scenario of each column.
func (c *Config) allgather(net network.Config, columns int) sim.Scenario {
	s := sim.Cluster(net, multicast.Op{Collective: wire.Allgather, Bytes: c.Bytes}, 1)
	s.Seed = c.Seed
	s.Core.Chains = min(s.Core.Size, mostChains)
	s.Core.Window = max(2, window/columns)
	s.Digest = true
	if c.Train > 1 {
		s.Coarse(c.Train)
	}
	return s
}

// nap is for how long a direct rank may leave what has come: a hundredth of what the shards of the
// others take, so that thousands of ranks do not look at thousands of streams for each packet.
func (c *Config) nap() network.Time {
	return network.Time(float64(c.Hosts*c.PerHost*c.Bytes) * 8 / c.Gbps / 100)
}

// rings runs the rings.
func (c *Config) rings(w Way, what Collective) (Result, error) {
	var r Result
	net, _ := c.network(w)
	algorithm := map[Collective]baseline.Algorithm{
		Allgather: baseline.AllgatherRing, ReduceScatter: baseline.ReduceScatterRing, Both: baseline.RingRing,
	}[what]
	done, err := baseline.Run(baseline.Config{
		Net: net, Seed: c.Seed, Algorithm: algorithm, Bytes: c.Bytes, Train: max(1, c.Train),
	})
	if err != nil {
		return r, err
	}
	tree, err := fattree.New(net.Tree)
	if err != nil {
		return r, err
	}
	r.Time, r.Events, r.Hash = done.Time, done.Events, done.Hash
	r.count(tree, done.Ports, w)
	return r, nil
}

// count finds the busiest links of hosts: where ranks are flat, those of the switches that they hang on.
func (r *Result) count(t *fattree.Tree, ports []network.Counter, w Way) {
	tier := 0
	if w == Flat || w == Ring {
		tier = 1
	}
	for q := range ports {
		p := &t.Ports[q]
		if p.Tier != tier {
			continue
		}
		_, bytes := ports[q].Sum()
		if up := p.From < p.To; up {
			r.Out = max(r.Out, bytes)
		} else {
			r.In = max(r.In, bytes)
		}
	}
}

// Allowed is how long links take for the payload that a way must move over each of them.
func (c *Config) Allowed(w Way, what Collective) network.Time {
	payload := float64(w.Crosses(what, c.Hosts, c.PerHost).Busiest()) * float64(c.Bytes)
	return network.Time(payload * 8 / c.Gbps * float64(time.Nanosecond))
}
