package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/simnet/fattree"
	"github.com/torch-mcast/torch-mcast/internal/simnet/network"
)

// concurrent runs Allgather and Reduce-Scatter at once, ours against rings (appendix B).
func concurrent(s *sheet) error {
	const bytes = 1 << 20
	c := newChart("Allgather and Reduce-Scatter of 1 MiB a rank at once: rings to ours", "nodes", "S, times as long")
	most := pick(s, 1024.0, 16)
	sizes := doublings(4, most)
	c.logX(plain, sizes...)
	var pts, law []point
	worst, worstAt := 0.0, 0
	for _, p := range sizes {
		nodes := int(p)
		pair := Pair{
			Bytes: pick(s, bytes, 256<<10), Chains: min(nodes, 4), Seed: s.Seed, Train: trainFor(nodes),
			Net: network.Config{Tree: fattree.Config{Hosts: nodes, Radix: 32}, Gbps: 200, Latency: 500 * time.Nanosecond},
		}
		s.step("%s: %d nodes", s.name, nodes)
		o, err := pair.Run()
		if err != nil {
			return err
		}
		s.row(o)
		pts, law = append(pts, point{X: p, Y: o.S}), append(law, point{X: p, Y: o.Law})
		if off := o.S/o.Law - 1; math.Abs(off) > math.Abs(worst) {
			worst, worstAt = off, nodes
		}
	}
	c.line("simulated", pts)
	c.claim("the paper: 2 - 2/P", law...)
	c.Y.Min, c.Y.Max = 0, 2.6
	s.chart("", c)
	last := pts[len(pts)-1]
	s.claim("S to 2 - 2/P, P = 4 to "+plain(most), "equal for large N", fmt.Sprintf("at most %+.1f %%, at %d nodes", 100*worst, worstAt), math.Abs(worst) <= 0.03)
	s.claim(fmt.Sprintf("S at %.0f nodes", last.X), fmt.Sprintf("%.3f", 2-2/last.X), fmt.Sprintf("%.3f", last.Y), math.Abs(last.Y/(2-2/last.X)-1) <= 0.03)
	return nil
}

// trainFor returns how many packets travel as one, so that a run of many nodes takes minutes.
func trainFor(nodes int) int { return max(1, min(16, nodes/32)) }
