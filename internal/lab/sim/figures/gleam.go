package figures

import (
	"fmt"
	"strconv"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// Times of networks where nothing waits for a scheduler: those of RC in the
// baselines for reliable messages, and the least cutoff that MCAST_CUTOFF allows.
const (
	retransmit  = 100 * time.Microsecond
	quickCutoff = 100 * time.Microsecond
)

// gleam shows the goodput of a Broadcast against loss (Gleam, fig. 16).
func gleam(s *sheet) error {
	groups := pick(s, []int{64, 512}, []int{8, 32})
	// Ports of a switch, so few that a group lies in several pods of three tiers, as one of a large
	// cluster does.
	spread := map[int]int{8: 4, 32: 6, 64: 8, 512: 16}
	losses := pick(s, []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2}, []float64{1e-4, 1e-3})
	for _, where := range []struct {
		suffix, title string
		faults        func(t *fattree.Tree, loss float64) network.Faults
	}{
		{"switches", "Broadcast, loss on links between switches", betweenSwitches},
		{"receivers", "Broadcast, loss at each receiver",
			func(_ *fattree.Tree, loss float64) network.Faults { return network.Faults{Loss: loss} }},
	} {
		c := chart.New(where.title, "loss", "goodput, % of that without loss")
		c.LogX(chart.Percent, losses...)
		kept := map[string]float64{}
		for _, way := range []struct {
			name, algorithm string
			rto, cutoff     time.Duration
		}{{"ours", Multicast, retransmit, quickCutoff}, {"ours, RTO 1 ms, cutoff 2 ms", Multicast, time.Millisecond, Cutoff},
			{"gleam", "gleam", retransmit, 0}} {
			for _, group := range groups {
				net := network.Config{
					Tree: fattree.Config{Hosts: group, Radix: spread[group], Tiers: 3}, Gbps: 200, Latency: 500 * time.Nanosecond,
					RTO: way.rto,
				}
				t, err := fattree.New(net.Tree)
				if err != nil {
					return err
				}
				one := Case{
					Collective: "broadcast", Algorithm: way.algorithm, Bytes: pick(s, 16<<20, 1<<20), Net: net, Reorder: -1,
					Cutoff: way.cutoff,
				}
				calm, err := s.run(one)
				if err != nil {
					return err
				}
				var pts []chart.Point
				for _, loss := range losses {
					one.Net.Faults = where.faults(t, loss)
					o, err := s.run(one)
					if err != nil {
						return err
					}
					share := 100 * o.Goodput / calm.Goodput
					pts = append(pts, chart.Point{X: loss, Y: share})
					kept[key(way.name, group, loss)] = share
				}
				c.Line(fmt.Sprintf("%s, group of %d", way.name, group), pts)
			}
		}
		for _, claim := range []struct {
			loss  float64
			paper string
			Rule
		}{{1e-4, "90 % or more", atLeast(90)}, {1e-3, "42 %", near(42)}} {
			for _, group := range groups {
				v := kept[key("gleam", group, claim.loss)]
				s.claim(fmt.Sprintf("goodput of Gleam's group of %d at %s loss, %s", group, chart.Percent(claim.loss),
					where.suffix), claim.paper,
					"%.0f %%, ours %.0f %%", v, kept[key("ours", group, claim.loss)]).agrees(claim.Rule, v)
			}
		}
		if many := groups[len(groups)-1]; where.suffix == "switches" {
			s.says("at 0.1 %% between switches a group of %d keeps %.0f %%, ours %.0f %%", many, kept[key("gleam", many, 1e-3)],
				kept[key("ours", many, 1e-3)])
		}
		c.Claim("the paper: Gleam", chart.Point{X: 1e-4, Y: 90}, chart.Point{X: 1e-3, Y: 42})
		c.Legend.Left, c.Legend.Top = true, false
		c.Legend.YOffs = 8
		c.Y.Min, c.Y.Max = 0, 105
		s.chart(where.suffix, c)
	}
	return nil
}

func key(name string, group int, loss float64) string {
	return name + strconv.Itoa(group) + chart.Percent(loss)
}

// betweenSwitches loses packets on all links between switches.
func betweenSwitches(t *fattree.Tree, loss float64) network.Faults {
	var f network.Faults
	for i := range t.Ports {
		if p := &t.Ports[i]; p.Tier > 0 && p.From < p.To {
			f.Lossy = append(f.Lossy, network.LossyLink{A: p.From, B: p.To, Loss: loss})
		}
	}
	return f
}
