package figures

import (
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// counters reads the switches' port counters at 188 nodes, as the paper did (fig. 12).
func counters(s *sheet) error {
	const bytes = 64 << 10
	nodes := pick(s, testbedNodes, 32)
	net := testbed(nodes)
	t, err := fattree.New(net.Tree)
	if err != nil {
		return err
	}
	for _, of := range []struct {
		collective, title string
		algorithms        []string
	}{
		{"broadcast", "Broadcast", []string{Multicast, "binomial", "knomial", "binary", "chain"}},
		{"allgather", "Allgather", []string{Multicast, "ring", "linear", "doubling"}},
	} {
		c := chart.New(fmt.Sprintf("%s of 64 KiB on %d nodes: all switch ports, received and sent", of.title, nodes), "",
			"MiB an operation")
		var values []float64
		for _, algorithm := range of.algorithms {
			o, err := s.run(Case{Collective: of.collective, Algorithm: algorithm, Bytes: bytes, Net: net})
			if err != nil {
				return err
			}
			values = append(values, float64(o.Switch)/(1<<20))
			if exact, ok := (count{t, 2}).exact(of.collective, algorithm, bytes); ok {
				off := float64(o.Switch)/float64(exact) - 1
				s.claim(fmt.Sprintf("%s by %s: port counters to the exact count", of.collective, algorithm), "(2 % is our bound)",
					"%+.2f %%", 100*off).kept(within(-2, 2), 100*off)
			}
		}
		c.Bars(of.algorithms, values)
		end := float64(len(values)) - 0.5
		c.Level("the paper: P2P takes 1.5x", -0.5, end, 1.5*values[0])
		c.Level("the paper: and up to 2x", -0.5, end, 2*values[0])
		c.Y.Max *= 1.15
		s.chart(of.collective, c)
		least, most := math.Inf(1), 0.0
		for _, v := range values[1:] {
			least, most = min(least, v/values[0]), max(most, v/values[0])
		}
		s.claim(of.collective+": P2P traffic to multicast's", "1.5x to 2x", "%.2fx to %.2fx", least, most).agrees(between(1.5,
			2), least, most)
		if of.collective == "allgather" {
			ring := values[1] / values[0]
			s.claim("allgather: ring's traffic to multicast's", "2x", "%.2fx", ring).agrees(near(2), ring)
			s.says("a ring's Allgather moves %.2fx the bytes of multicast's", ring)
		}
	}
	return nil
}
