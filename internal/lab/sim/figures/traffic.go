package figures

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// trafficRow is a point of fig. 2: how often a shard's bytes cross a link, all shards together.
type trafficRow struct {
	Nodes     int     `json:"nodes"`
	Algorithm string  `json:"algorithm"`
	Crossings int     `json:"link_crossings_of_a_shard"`
	Savings   float64 `json:"to_multicast"` // how often it is what multicast takes
}

// traffic counts what an Allgather moves over a fat tree of radix 32 (fig. 2).
func traffic(s *sheet) error {
	const radix, full = 32, 1024
	c := chart.New("Allgather: bytes over all links, to those of multicast (radix 32, three tiers)", "nodes",
		"times as many bytes")
	c.LogX(chart.Plain, doublings(16, full)...)
	last := map[string]float64{}
	for _, algorithm := range []string{"doubling", "ring", Multicast} {
		var pts []chart.Point
		for nodes := 16; nodes <= full; nodes *= 2 {
			t, err := fattree.New(fattree.Config{Hosts: nodes, Radix: radix, Tiers: 3})
			if err != nil {
				return err
			}
			crossings, _ := count{t, 1}.gather(algorithm)
			ours, _ := count{t, 1}.gather(Multicast)
			row := trafficRow{nodes, algorithm, crossings, float64(crossings) / float64(ours)}
			if err := s.row(row); err != nil {
				return err
			}
			pts = append(pts, chart.Point{X: float64(nodes), Y: row.Savings})
			last[algorithm] = row.Savings
		}
		name := algorithm
		if algorithm == "doubling" {
			name = "recursive doubling (linear: the same)"
		}
		c.Line(name, pts)
	}
	simulated, err := simulate(s, pick(s, full, 64), radix)
	if err != nil {
		return err
	}
	c.Line("ring, simulated", []chart.Point{simulated})
	c.Level("the paper: 2x", 16, full, 2)
	c.Y.Min, c.Y.Max = 0, 7
	s.chart("", c)
	s.claim("traffic of a ring Allgather to multicast's, 1024 nodes", "2x", "%.3fx", last["ring"]).agrees(within(1.95, 2),
		last["ring"])
	s.claim(fmt.Sprintf("the same, simulated on %.0f nodes, with all headers and control messages", simulated.X), "2x",
		"%.3fx", simulated.Y).agrees(within(1.95, 2), simulated.Y)
	s.claim("of recursive doubling, or a linear one", "not given", "%.2fx", last["doubling"])
	s.says("%.3fx by count, %.3fx by the links' counters", last["ring"], simulated.Y)
	return nil
}

// simulate returns what the links' counters say of an Allgather of 128 KiB, a ring to ours.
func simulate(s *sheet, nodes, radix int) (chart.Point, error) {
	net := network.Config{
		Tree: fattree.Config{Hosts: nodes, Radix: radix, Tiers: 3}, Gbps: 200, Latency: 500 * time.Nanosecond,
	}
	bytes := map[string]float64{}
	for _, way := range []Case{{Algorithm: Multicast, Train: 8}, {Algorithm: "ring", Train: 32}} {
		way.Collective, way.Bytes, way.Net = "allgather", 128<<10, net
		o, err := s.run(way)
		if err != nil {
			return chart.Point{}, err
		}
		bytes[way.Algorithm] = float64(o.Links)
	}
	return chart.Point{X: float64(nodes), Y: bytes["ring"] / bytes[Multicast]}, nil
}
