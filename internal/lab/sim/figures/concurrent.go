package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// concurrent runs Allgather and Reduce-Scatter at once, ours against rings
// (appendix B): with chains and a window as an overlap has them by default, and
// for fewer nodes with one chain and no window, which shows what those are for.
func concurrent(s *sheet) error {
	whole := pick(s, 256<<20, 4<<20) // P*N: what a rank receives, about
	most := pick(s, 1024.0, 16)
	// With less a shard, the Reduce-Scatter's windows hold less than the Allgather's.
	least := pick(s, 512<<10, 0)
	const alone = 64 // most nodes of one chain
	c := chart.New("Allgather and Reduce-Scatter at once: rings to ours", "nodes", "S, times as long")
	sizes := doublings(4, most)
	c.LogX(chart.Plain, sizes...)
	measure := func(nodes, chains int) (PairOutcome, error) {
		pair := Pair{
			Bytes: max(whole/nodes, least), Chains: chains, Subgroups: 2, Seed: s.Seed, Train: pick(s, 8, 4),
			Net: network.Config{Tree: fattree.Config{Hosts: nodes, Radix: 32}, Gbps: 200, Latency: 500 * time.Nanosecond},
		}
		if nodes > 256 {
			pair.Train = 16
		}
		s.step("%s: %d nodes, %d chains", s.name, nodes, chains)
		return measured(s, pair.Run)
	}
	var law, many, one []chart.Point
	worst, worstAt := 0.0, 0
	for _, p := range sizes {
		nodes := int(p)
		o, err := measure(nodes, 0)
		if err != nil {
			return err
		}
		law, many = append(law, chart.Point{X: p, Y: o.Law}), append(many, chart.Point{X: p, Y: o.S})
		if off := o.S/o.Law - 1; math.Abs(off) > math.Abs(worst) {
			worst, worstAt = off, nodes
		}
		if nodes > alone {
			continue
		}
		if o, err = measure(nodes, 1); err != nil {
			return err
		}
		one = append(one, chart.Point{X: p, Y: o.S})
	}
	c.Line("simulated, M = min(P, 64), with a window", many)
	c.Line("simulated, M = 1, without a window", one)
	c.Claim("the paper: 2 - 2/P", law...)
	c.Y.Min, c.Y.Max = 0, 2.6
	s.chart("", c)
	law3 := within(0.97, 1.03) // of the paper's formula
	s.said = append(s.said, saying{"docs/project/evidence.md", factors(many)})
	for _, at := range []chart.Point{many[0], many[len(many)-1]} {
		paper := 2 - 2/at.X
		s.claim(fmt.Sprintf("S at %.0f nodes", at.X), fmt.Sprintf("%.3f", paper), "%.3f", at.Y).agrees(law3, at.Y/paper)
	}
	s.claim(fmt.Sprintf("S within 3 %% of 2 - 2/P at every P from 4 to %.0f", most), "all P",
		"at most %+.1f %%, at %d nodes", 100*worst, worstAt).agrees(law3, 1+worst)
	last := one[len(one)-1]
	s.claim(fmt.Sprintf("S with one chain and no window, %.0f nodes", last.X), "not given", "%.3f of %.3f", last.Y,
		2-2/last.X)
	s.says("within %.1f %% of 2 - 2/P at every P from 4 to %.0f, given many chains and a window", 100*math.Abs(worst),
		most)
	return nil
}

// factors is the row of docs/project/evidence.md: S at 4 nodes, 16, 64 and so on.
func factors(pts []chart.Point) string {
	row := "| time of two rings to that of ours, switches adding |"
	for i := 0; i < len(pts); i += 2 {
		row += fmt.Sprintf(" %.3f |", pts[i].Y)
	}
	return row
}
