package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/baseline"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// connections and their bytes on chip, before SRNIC's changes and after (SRNIC, NSDI 23, table 1).
const connections = 10_000

var onChip = []struct {
	what          string
	before, after float64 // MB
}{
	{"receiving buffer", 0.6, 0.6}, {"QPC", 2.0, 2.0}, {"MTT", 8, 1.2}, {"WQE cache", 9.8, 0}, {"bitmap", 3.0, 0},
	{"reordering buffer", 4900, 0}, {"outstanding requests", 114.4, 0},
}

// srnic shows the goodput between two hosts against loss (SRNIC, fig. 11), and what memory each way
// takes (table 1).
func srnic(s *sheet) error {
	const packet, gbps = 1024, 100
	losses := pick(s, []float64{1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2}, []float64{1e-3, 1e-2})
	c := chart.New("A stream between two hosts at 100 Gbit/s, packets of 1 KiB", "loss", "goodput, Gbit/s")
	c.LogX(chart.Percent, losses...)
	// RTT about 20 us
	net := network.Config{Tree: fattree.Config{Hosts: 2}, Gbps: gbps, Latency: 5 * time.Microsecond, RTO: retransmit}
	at := map[string]float64{}
	for _, way := range []struct {
		name string
		Case
	}{
		{"ours", Case{Algorithm: Multicast, Reorder: -1, Cutoff: quickCutoff}},
		{"selective repeat", Case{Algorithm: "chain", Transport: baseline.SelectiveRepeat}},
		{"selective repeat, 500 in flight", Case{Algorithm: "chain", Transport: baseline.SelectiveRepeat, Window: 500}},
		{"go-back-N", Case{Algorithm: "chain", Transport: baseline.GoBackN}},
	} {
		one := way.Case
		one.Collective, one.Bytes, one.Packet, one.Net = "broadcast", pick(s, 64<<20, 16<<20), packet, net
		var pts []chart.Point
		for _, loss := range losses {
			one.Net.Faults.Loss = loss
			o, err := s.run(one)
			if err != nil {
				return err
			}
			pts = append(pts, chart.Point{X: loss, Y: o.Goodput})
			if loss == 1e-2 {
				at[way.name] = o.Goodput
			}
		}
		c.Line(way.name, pts)
	}
	c.Claim("the paper: SRNIC", chart.Point{X: losses[0], Y: 97}, chart.Point{X: 1e-3, Y: 97}, chart.Point{X: 1e-2, Y: 75})
	c.Claim("the paper: go-back-N (CX-6)", chart.Point{X: 1e-3, Y: 97}, chart.Point{X: 1e-2, Y: 25})
	c.Legend.Top, c.Legend.YOffs = false, 8
	c.Y.Min, c.Y.Max = 0, 105
	s.chart("", c)
	s.claim("go-back-N at 1 % loss", "25 Gbit/s", "%.0f Gbit/s", at["go-back-N"]).agrees(near(25), at["go-back-N"])
	repeat := at["selective repeat, 500 in flight"]
	s.claim("selective repeat at 1 % loss", "75 Gbit/s",
		"%.0f Gbit/s with 500 packets in flight, %.0f with the bandwidth-delay product; ours %.0f", repeat,
		at["selective repeat"], at["ours"]).
		agrees(near(75), repeat)
	s.claim("selective repeat to go-back-N at 1 % loss", "3x", "%.2fx; ours %.2fx", repeat/at["go-back-N"],
		at["ours"]/at["go-back-N"]).
		agrees(near(3), repeat/at["go-back-N"])
	s.says("at 1 %% loss go-back-N has %.0f Gbit/s, selective repeat %.0f", at["go-back-N"], repeat)

	var before, after float64
	for _, m := range onChip {
		if err := s.row(struct {
			What   string  `json:"memory"`
			Before float64 `json:"before_mb"`
			After  float64 `json:"after_mb"`
		}{m.what, m.before, m.after}); err != nil {
			return err
		}
		before, after = before+m.before, after+m.after
	}
	const chunks = 32 // of each rank
	ours := float64(stateOf(connections, chunks)) / 1e6
	s.claim("memory to hear 10,000 peers",
		fmt.Sprintf("%.0f MB with selective repeat as is, %.1f MB in SRNIC", before, after),
		"%.2f MB for an Allgather of %s from each, before the first loss; %d connections", ours,
		chart.Size(chunks*bitmapChunk), 2*int(math.Ceil(math.Log2(connections))))
	s.says("%.2f MB for 10,000 peers before the first loss", ours)
	return nil
}
