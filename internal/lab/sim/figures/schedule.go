package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// scheduleRow is a point of the choice of M and G.
type scheduleRow struct {
	Fabric string `json:"fabric"`
	Limit  int    `json:"queue_bytes"`
	Outcome
}

// schedule shows how chains (M) and subgroups (G) should be chosen by topology, which no paper
// shows.
func schedule(s *sheet) error {
	hosts := pick(s, 128, 16)
	fabrics := []struct {
		name string
		tree fattree.Config
	}{
		{"star", fattree.Config{Hosts: hosts}},
		{"two tiers", fattree.Config{Hosts: hosts, Leaves: 8, Spines: 8}},
		{"two tiers, 4:1", fattree.Config{Hosts: hosts, Leaves: 8, Spines: 2, Oversubscription: 4}},
		{"three tiers", fattree.Config{Hosts: hosts, Radix: pick(s, 8, 4), Tiers: 3}},
		{"two tiers, two rails", fattree.Config{Hosts: hosts, Leaves: 8, Spines: 8, Rails: 2}},
	}
	measure := func(c *chart.Chart, fabric string, tree fattree.Config, over []float64, of func(x int,
		one *Case)) ([]chart.Point, error) {
		var pts []chart.Point
		for _, x := range over {
			one := Case{
				Collective: "allgather", Algorithm: Multicast, Seed: s.Seed,
				Net: network.Config{Tree: tree, Gbps: 200, Latency: 500 * time.Nanosecond},
			}
			of(int(x), &one)
			s.step("%s: %s, M=%d, G=%d", s.name, fabric, one.Chains, one.Subgroups)
			row, err := measured(s, func() (scheduleRow, error) {
				o, err := one.Run(nil)
				return scheduleRow{fabric, one.Net.Queue, o}, err
			})
			if err != nil {
				return nil, err
			}
			pts = append(pts, chart.Point{X: x, Y: row.Goodput})
		}
		c.Line(fabric, pts)
		return pts, nil
	}
	over := doublings(1, pick(s, 64.0, 8))
	large := pick(s, 128<<10, 32<<10)
	for _, size := range []int{16 << 10, large} {
		c := chart.New(fmt.Sprintf("Allgather of %s on %d nodes: chains, with one subgroup a rail", chart.Size(float64(size)),
			hosts), "chains, M", "received by a rank, Gbit/s")
		c.LogX(chart.Plain, over...)
		for _, f := range fabrics {
			pts, err := measure(c, f.name, f.tree, over, func(m int, one *Case) {
				one.Bytes, one.Chains, one.Subgroups = size, m, max(1, f.tree.Rails)
			})
			if err != nil {
				return err
			}
			if f.name == "two tiers" {
				s.claim(fmt.Sprintf("M for %s a rank, two tiers", chart.Size(float64(size))), "not given", "%s", best(pts, "M"))
			}
		}
		c.Level("link, 200 Gbit/s", 1, over[len(over)-1], 200)
		c.Y.Min, c.Y.Max = 0, 620
		s.chart(fmt.Sprintf("chains-%dk", size>>10), c)
	}
	c := chart.New(fmt.Sprintf("Allgather of %s on %d nodes: subgroups, with 16 chains", chart.Size(float64(large)),
		hosts), "subgroups, G", "received by a rank, Gbit/s")
	groups := doublings(1, pick(s, 32.0, 4))
	c.LogX(chart.Plain, groups...)
	for _, f := range fabrics {
		if _, err := measure(c, f.name, f.tree, groups, func(g int, one *Case) {
			one.Bytes, one.Chains, one.Subgroups = large, min(16, hosts/2), g
		}); err != nil {
			return err
		}
	}
	c.Level("link, 200 Gbit/s", 1, groups[len(groups)-1], 200)
	c.Y.Min, c.Y.Max = 0, 620
	s.chart("subgroups", c)

	few := min(hosts, 64) // what queues drop is repaired, which takes many events
	c = chart.New(fmt.Sprintf("Allgather of %s on %d nodes, two tiers, G=8: chains where queues end",
		chart.Size(float64(large)), few), "chains, M", "received by a rank, Gbit/s")
	over = over[:len(over)-2]
	c.LogX(chart.Plain, over...)
	tree := fabrics[1].tree
	least, most := math.Inf(1), 0.0 // with a window, Gbit/s
	tree.Hosts = few
	for _, queue := range []int{0, 1 << 20, 128 << 10} {
		for _, window := range []int{0, 64} {
			if queue == 0 && window > 0 {
				continue
			}
			name := "queues of any length"
			if queue > 0 {
				name = fmt.Sprintf("queues of %s", chart.Size(float64(queue)))
			}
			if window > 0 {
				name += fmt.Sprintf(", window of %d", window)
			}
			pts, err := measure(c, name, tree, over, func(m int, one *Case) {
				one.Bytes, one.Chains, one.Subgroups, one.Net.Queue, one.Window = large, m, 8, queue, window
			})
			if err != nil {
				return err
			}
			if window > 0 {
				for _, p := range pts[1:] {
					least, most = min(least, p.Y), max(most, p.Y)
				}
			}
		}
	}
	c.Y.Min, c.Y.Max = 0, 400
	s.chart("queues", c)
	s.says("waiting for credits: %.0f to %.0f Gbit/s with M from 2 to %.0f", least, most, over[len(over)-1])
	return nil
}

// best says where a series is highest, and what the smallest within 3 % of that is.
func best(pts []chart.Point, name string) string {
	most := 0.0
	for _, p := range pts {
		most = max(most, p.Y)
	}
	for _, p := range pts {
		if p.Y >= 0.97*most {
			return fmt.Sprintf("%s=%.0f reaches %.0f of at most %.0f Gbit/s", name, p.X, p.Y, most)
		}
	}
	return ""
}
