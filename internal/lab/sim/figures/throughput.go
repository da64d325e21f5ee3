package figures

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// scatterGather is what UCC's k-nomial Broadcast does with large messages
// (sag_knomial): a tree scatters parts of the message, an Allgather joins them.
const scatterGather = "scatter + Allgather"

// scattered returns the goodput of that, Gbit/s: the Allgather, ring or recursive doubling,
// whichever is faster, is simulated, of the scatter by a binomial tree the critical path counted:
// the root sends all parts but its own, the last one over log2 P ranks.
func scattered(s *sheet, net network.Config, bytes int) (float64, error) {
	nodes := net.Tree.Hosts
	part := max(1, bytes/nodes)
	gather := math.Inf(1)
	for _, algorithm := range []string{"ring", "doubling"} {
		o, err := s.run(Case{Collective: "allgather", Algorithm: algorithm, Bytes: part, Net: net})
		if err != nil {
			return 0, err
		}
		gather = min(gather, o.TimeUS)
	}
	links := 4 * bits.Len(uint(nodes-1)) // most ranks are on other leaves
	scatter := float64(bytes-part)*8/net.Gbps/1e3 + float64(links)*micros(net.Latency)
	return float64(bytes) * 8 / (gather + scatter) / 1e3, nil
}

// throughput compares what a process receives at 188 nodes (fig. 11). Hosts of
// the others pass a packet on as soon as they hold it, which is best for all of them.
func throughput(s *sheet) error {
	nodes := pick(s, testbedNodes, 24)
	net := testbed(nodes)
	draw := func(collective, suffix, title string, sizes []float64, algorithms []string) (map[string][]float64, error) {
		c := chart.New(fmt.Sprintf(title, nodes), "bytes a rank", "received by a process, Gbit/s")
		c.LogX(chart.Size, sizes...)
		all := map[string][]float64{}
		for _, algorithm := range algorithms {
			var pts []chart.Point
			for _, n := range sizes {
				if algorithm == scatterGather {
					goodput, err := scattered(s, net, int(n))
					if err != nil {
						return nil, err
					}
					pts = append(pts, chart.Point{X: n, Y: goodput})
					all[algorithm] = append(all[algorithm], goodput)
					continue
				}
				o, err := s.run(Case{Collective: collective, Algorithm: algorithm, Bytes: int(n), Segment: packetBytes, Net: net})
				if err != nil {
					return nil, err
				}
				pts = append(pts, chart.Point{X: n, Y: o.Goodput})
				all[algorithm] = append(all[algorithm], o.Goodput)
			}
			name := algorithm
			if algorithm != Multicast && algorithm != scatterGather {
				name += ", segments of " + chart.Size(packetBytes)
			}
			c.Line(name, pts)
		}
		c.Level("link, 56 Gbit/s", sizes[0], sizes[len(sizes)-1], net.Gbps)
		c.Y.Min, c.Y.Max = 0, 90
		s.chart(suffix, c)
		return all, nil
	}
	trees := []string{Multicast, "knomial", scatterGather, "binary", "chain"}
	sizes := pick(s, doublings(4<<10, 4<<20), []float64{4 << 10, 256 << 10})
	b, err := draw("broadcast", "broadcast", "Broadcast on %d nodes", sizes, trees)
	if err != nil {
		return err
	}
	best := func(all map[string][]float64, other string) (most float64, at int) {
		for i, v := range all[Multicast] {
			if r := v / all[other][i]; r > most {
				most, at = r, i
			}
		}
		return most, at
	}
	for _, claim := range []struct {
		other, paper string
		most         float64
	}{{scatterGather, "up to 1.3x (k-nomial)", 1.3}, {"knomial", "up to 1.3x", 1.3}, {"binary", "up to 4.75x", 4.75}} {
		r, at := best(b, claim.other)
		s.claim("Broadcast by multicast to "+claim.other, claim.paper, "up to %.2fx, at %s", r,
			chart.Size(sizes[at])).agrees(near(claim.most), r)
		s.says("%.1fx of %s", r, claim.other)
	}
	sizes = pick(s, doublings(4<<10, 256<<10), []float64{4 << 10, 64 << 10})
	g, err := draw("allgather", "allgather", "Allgather on %d nodes", sizes, []string{Multicast, "ring"})
	if err != nil {
		return err
	}
	last := len(sizes) - 1
	r := g[Multicast][last] / g["ring"][last]
	s.claim("Allgather of "+chart.Size(sizes[last])+" by multicast to ring", "same throughput", "%.2fx", r).agrees(near(1),
		r)
	s.says("it has %.2fx a ring's throughput", r)
	return nil
}
