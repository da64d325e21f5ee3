package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/nodes"
)

// Crowd is a collective by one way, with several ranks on each host that share its link.
type Crowd struct {
	nodes.Config
	Way        nodes.Way
	Collective nodes.Collective
}

// CrowdOutcome is what passed hosts' links, and how long it took.
type CrowdOutcome struct {
	Hosts      int              `json:"hosts"`
	PerHost    int              `json:"per_host"`
	Bytes      int              `json:"bytes"` // of a shard
	Train      int              `json:"packets_a_train"`
	Way        nodes.Way        `json:"way"`
	Collective nodes.Collective `json:"collective"`

	// Bytes of the busiest link from a host and of the busiest to one, headers and control messages
	// included, and as many times the payload that must pass.
	Out      uint64  `json:"out_bytes"`
	In       uint64  `json:"in_bytes"`
	OutToLaw float64 `json:"out_to_law"`
	InToLaw  float64 `json:"in_to_law"`
	TimeUS   float64 `json:"time_us"`
	// Reached is how long a link takes for the payload of its busier direction, to the time.
	Reached float64 `json:"allowed_to_time"`
	Again   uint64  `json:"sent_again"`
	Events  uint64  `json:"events"`
	Hash    string  `json:"hash"`
	Seed    uint64  `json:"seed"`
	Wall    float64 `json:"wall_s"`
}

// Run runs it.
func (c Crowd) Run() (CrowdOutcome, error) {
	o := CrowdOutcome{
		Hosts: c.Hosts, PerHost: c.PerHost, Bytes: c.Bytes, Train: max(1, c.Train), Way: c.Way, Collective: c.Collective,
		Seed: c.Seed,
	}
	began := time.Now()
	r, err := c.Config.Run(c.Way, c.Collective)
	if err != nil {
		return o, err
	}
	law := c.Way.Crosses(c.Collective, c.Hosts, c.PerHost)
	over := func(bytes uint64, shards int) float64 { return float64(bytes) / float64(shards) / float64(c.Bytes) }
	o.Out, o.In = r.Out, r.In
	o.OutToLaw, o.InToLaw = over(r.Out, law.Out), over(r.In, law.In)
	o.TimeUS = micros(r.Time)
	o.Reached = micros(c.Allowed(c.Way, c.Collective)) / o.TimeUS
	o.Again, o.Events, o.Hash, o.Wall = r.Repaired, r.Events, fmt.Sprintf("%016x", r.Hash), time.Since(began).Seconds()
	return o, nil
}

// crowd is N x K ranks of a figure.
type crowd struct{ hosts, perHost, bytes, train int }

// crowds runs what crosses hosts' links where ranks share them, and S against rings through all ranks.
func crowds(s *sheet) error {
	sizes := pick(s, []crowd{{4, 4, 1 << 20, 4}, {16, 8, 256 << 10, 4}, {128, 8, 64 << 10, 4}},
		[]crowd{{4, 4, 256 << 10, 1}, {2, 8, 256 << 10, 1}})
	ways := []nodes.Way{nodes.Ring, nodes.Flat, nodes.Nodes, nodes.Switch}
	points, laws := map[nodes.Way][]chart.Point{}, map[nodes.Way][]chart.Point{}
	worst, slowest := 0.0, 1.0 // of nodes
	off := 0.0                 // of S from its law
	var ranks []float64
	for _, at := range sizes {
		p := float64(at.hosts * at.perHost)
		ranks = append(ranks, p)
		rings := 0.0
		for _, w := range ways {
			for _, what := range nodes.Collectives {
				if w == nodes.Flat && at.hosts > 16 {
					continue
				}
				s.step("%s: %s by %s on %d hosts of %d ranks", s.name, what, w, at.hosts, at.perHost)
				o, err := measured(s,
					Crowd{Config: nodes.Scaled(at.hosts, at.perHost, at.bytes, at.train, s.Seed), Way: w, Collective: what}.Run)
				if err != nil {
					return err
				}
				if w == nodes.Nodes || w == nodes.Switch {
					slowest = min(slowest, o.Reached)
					switch what { // the direction that P-K shards pass
					case nodes.Allgather:
						worst = max(worst, o.InToLaw)
					case nodes.ReduceScatter:
						worst = max(worst, o.OutToLaw)
					}
				}
				switch {
				case what != nodes.Both:
				case w == nodes.Ring:
					rings = o.TimeUS
				default:
					law := w.Speedup(at.hosts, at.perHost)
					points[w] = append(points[w], chart.Point{X: p, Y: rings / o.TimeUS})
					laws[w] = append(laws[w], chart.Point{X: p, Y: law})
					s.claim(fmt.Sprintf("S at %d x %d, %s", at.hosts, at.perHost, w), fmt.Sprintf("%.3f", law), "%.3f",
						rings/o.TimeUS).
						kept(within(0.95, 1.05), rings/o.TimeUS/law)
					off = max(off, math.Abs(rings/o.TimeUS/law-1))
				}
			}
		}
	}
	s.claim("bytes of an Allgather in and of a Reduce-Scatter out of a host, by nodes, to (P-K)n", "at most 1.03",
		"at most %.3f, with headers", worst).kept(atMost(1.03), worst)
	s.claim("time that links take for what must pass, to the time of nodes", "at least 0.9", "at least %.3f",
		slowest).kept(atLeast(0.9), slowest)
	s.says("within %.1f %% of the law of docs/explain/nodes.md up to %.0f ranks", 100*off, ranks[len(ranks)-1])
	c := chart.New("Allgather and Reduce-Scatter at once: rings to ours, ranks sharing a host's link", "ranks",
		"S, times as long")
	c.LogX(chart.Plain, ranks...)
	for _, w := range ways[1:] {
		c.Line(string(w), points[w])
		c.Claim("law, "+string(w), laws[w]...)
	}
	c.Y.Min, c.Y.Max = 0, 2.6
	s.chart("", c)
	return nil
}
