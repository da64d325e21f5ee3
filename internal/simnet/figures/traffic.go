package figures

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/simnet/fattree"
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
	c := newChart("Allgather: bytes over all links, to those of multicast (radix 32, three tiers)", "nodes", "times as many bytes")
	c.logX(plain, doublings(16, full)...)
	last := map[string]float64{}
	for _, algorithm := range []string{"linear", "doubling", "ring", Multicast} {
		var pts []point
		for nodes := 16; nodes <= full; nodes *= 2 {
			t, err := fattree.New(fattree.Config{Hosts: nodes, Radix: radix, Tiers: 3})
			if err != nil {
				return err
			}
			crossings, _ := count{t, 1}.gather(algorithm)
			ours, _ := count{t, 1}.gather(Multicast)
			row := trafficRow{nodes, algorithm, crossings, float64(crossings) / float64(ours)}
			s.row(row)
			pts = append(pts, point{X: float64(nodes), Y: row.Savings})
			last[algorithm] = row.Savings
		}
		c.line(algorithm, pts)
	}
	c.level("the paper: 2x", 16, full, 2)
	c.Y.Min, c.Y.Max = 0, 7
	s.chart("", c)
	s.claim("traffic of a ring Allgather to multicast's, 1024 nodes", "2x", fmt.Sprintf("%.3fx", last["ring"]), last["ring"] >= 1.95 && last["ring"] <= 2)
	s.claim("of a linear one or recursive doubling", "not given", fmt.Sprintf("%.2fx, %.2fx", last["linear"], last["doubling"]), true)
	return nil
}
