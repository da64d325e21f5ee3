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
	whole := pick(s, 64<<20, 4<<20) // P*N: what a rank receives, about
	most := pick(s, 1024.0, 16)
	c := newChart("Allgather and Reduce-Scatter at once: rings to ours", "nodes", "S, times as long")
	sizes := doublings(4, most)
	c.logX(plain, sizes...)
	var pts, law, ours []point
	worst, worstAt := 0.0, 0
	near := 0
	for _, p := range sizes {
		nodes := int(p)
		pair := Pair{
			Bytes: max(whole/nodes, pick(s, 512<<10, 0)), Subgroups: 2, Seed: s.Seed, Train: pick(s, max(4, nodes/64), 4),
			Net: network.Config{Tree: fattree.Config{Hosts: nodes, Radix: 32}, Gbps: 200, Latency: 500 * time.Nanosecond},
		}
		s.step("%s: %d nodes", s.name, nodes)
		o, err := pair.Run()
		if err != nil {
			return err
		}
		s.row(o)
		mine := 2 * (p - 1) / (p + 1)
		pts, law, ours = append(pts, point{X: p, Y: o.S}), append(law, point{X: p, Y: o.Law}), append(ours, point{X: p, Y: mine})
		if off := o.S/mine - 1; math.Abs(off) > math.Abs(worst) {
			worst, worstAt = off, nodes
		}
		if near == 0 && math.Abs(o.S/o.Law-1) <= 0.03 {
			near = nodes
		}
	}
	c.line("simulated", pts)
	c.claim("the paper: 2 - 2/P", law...)
	c.claim("with the own contribution sent: 2 (P-1)/(P+1)", ours...)
	c.Y.Min, c.Y.Max = 0, 2.6
	s.chart("", c)
	first, last := pts[0], pts[len(pts)-1]
	for _, at := range []point{first, last} {
		paper := 2 - 2/at.X
		s.claim(fmt.Sprintf("S at %.0f nodes", at.X), fmt.Sprintf("%.3f", paper), fmt.Sprintf("%.3f", at.Y), math.Abs(at.Y/paper-1) <= 0.03)
	}
	s.claim("S within 3 % of 2 - 2/P", "all P", fmt.Sprintf("from %d nodes", near), near == 4)
	s.claim("S to 2 (P-1)/(P+1), where ranks send their own contribution, too", "not given", fmt.Sprintf("at most %+.1f %%, at %d nodes", 100*worst, worstAt), math.Abs(worst) <= 0.03)
	return nil
}
