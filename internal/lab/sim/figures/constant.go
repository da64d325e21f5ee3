package figures

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// grown is the network of a number of hosts in which nothing but their number differs: the testbed's
// links and cores on a fat tree of radix 32.
func grown(nodes int) network.Config {
	c := testbed(nodes)
	c.Tree = fattree.Config{Hosts: nodes, Radix: 32, Tiers: 3}
	return c
}

// constantTime shows what the number of ranks does to the time of operations (II-A and III).
func constantTime(s *sheet) error {
	counts := doublings(2, pick(s, 1024.0, 16))
	most := counts[len(counts)-1]
	if err := broadcastTime(s, counts, most); err != nil {
		return err
	}
	return gatherTime(s, counts, most)
}

// broadcastTime measures the time of a Broadcast, which should be the same for any number of ranks.
func broadcastTime(s *sheet, counts []float64, most float64) error {
	for _, bytes := range []int{64 << 10, 1 << 20} {
		c := chart.New("Broadcast of "+chart.Size(float64(bytes)), "ranks", "us")
		c.LogX(chart.Plain, counts...)
		highest := 0.0
		at := func(o Outcome) chart.Point { return chart.Point{X: float64(o.Nodes), Y: o.TimeUS} }
		for _, algorithm := range []string{Multicast, "knomial", "binary"} {
			var pts, data []chart.Point
			for _, p := range counts {
				o, err := s.run(Case{
					Collective: "broadcast", Algorithm: algorithm, Bytes: bytes, Segment: packetBytes, Net: grown(int(p)),
					Trace: algorithm == Multicast,
				})
				if err != nil {
					return err
				}
				pts = append(pts, at(o))
				data = append(data, chart.Point{X: p, Y: o.TimeUS - o.Share.Barrier})
				highest = max(highest, o.TimeUS)
			}
			c.Line(algorithm, pts)
			first, last := pts[0].Y, pts[len(pts)-1].Y
			if algorithm != Multicast {
				s.claim(fmt.Sprintf("Broadcast of %s by %s: time at %.0f ranks to that at 2", chart.Size(float64(bytes)), algorithm,
					most), "not given", "%.2fx", last/first)
				continue
			}
			c.Line("mcast, without the barrier", data)
			s.claim(fmt.Sprintf("Broadcast of %s: time at %.0f ranks to that at 2", chart.Size(float64(bytes)), most),
				"constant", "%.2fx", last/first).agrees(near(1), last/first)
			bare := data[len(data)-1].Y / data[0].Y
			s.claim(fmt.Sprintf("Broadcast of %s without the barrier: the same", chart.Size(float64(bytes))), "constant",
				"%.2fx", bare).agrees(near(1), bare)
			s.says("Broadcast of %s at %.0f ranks: %.2fx the time at 2, %.2fx without the barrier", chart.Size(float64(bytes)),
				most, last/first, bare)
		}
		c.Y.Min, c.Y.Max = 0, 1.4*highest
		s.chart(fmt.Sprintf("broadcast-%s", map[int]string{64 << 10: "64k", 1 << 20: "1m"}[bytes]), c)
	}
	return nil
}

// gatherTime measures the time of an Allgather, as a multiple of the time that its bytes take on a
// rank's link.
func gatherTime(s *sheet, counts []float64, most float64) error {
	const bytes = 64 << 10
	c := chart.New("Allgather of "+chart.Size(bytes)+" a rank", "ranks", "time to N(P-1)/B")
	c.LogX(chart.Plain, counts...)
	highest := 0.0
	for _, way := range []struct {
		name string
		Case
	}{
		{"mcast, M = 1", Case{Algorithm: Multicast}},
		{"mcast, M = 4", Case{Algorithm: Multicast, Chains: 4}},
		{"ring", Case{Algorithm: "ring", Segment: packetBytes}},
	} {
		var pts []chart.Point
		for _, p := range counts {
			way.Collective, way.Bytes, way.Net = "allgather", bytes, grown(int(p))
			o, err := s.run(way.Case)
			if err != nil {
				return err
			}
			ideal := bytes * (p - 1) * 8 / way.Net.Gbps / 1e3
			pts = append(pts, chart.Point{X: p, Y: o.TimeUS / ideal})
			highest = max(highest, o.TimeUS/ideal)
		}
		c.Line(way.name, pts)
		last := pts[len(pts)-1].Y
		s.claim(fmt.Sprintf("time of an Allgather at %.0f ranks to N(P-1)/B, %s", most, way.name), "1", "%.3f",
			last).agrees(near(1), last)
	}
	c.Level("T = N(P-1)/B", counts[0], most, 1)
	c.Y.Min, c.Y.Max = 0, 1.3*highest
	s.chart("allgather", c)
	return nil
}
