package figures

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// noise is how schedulers take the core from receiving threads: on every host by itself, every so often, for a while.
// Both times are means of exponential distributions.
type noise struct {
	name       string
	every, gap time.Duration
}

// noises both take one hundredth of all time: a daemon that runs now and then, and the ticks of a timer.
// The paper does not say what its hosts did.
var noises = []noise{
	{"100 us in 10 ms", 10 * time.Millisecond, 100 * time.Microsecond},
	{"10 us in 1 ms", time.Millisecond, 10 * time.Microsecond},
}

// pauses draws when hosts stop until some moment.
func (n noise) pauses(hosts int, until time.Duration, seed uint64) []network.Pause {
	random := rand.New(rand.NewPCG(seed, 0))
	some := func(mean time.Duration) time.Duration { return time.Duration(random.ExpFloat64() * float64(mean)) }
	var all []network.Pause
	for h := range hosts {
		for at := some(n.every); at < until; at += some(n.every) {
			all = append(all, network.Pause{Node: h, At: at, For: some(n.gap)})
		}
	}
	return all
}

// spreadRow is how long operations of one kind took that differ in nothing but the noise.
type spreadRow struct {
	Collective string    `json:"collective"`
	Algorithm  string    `json:"algorithm"`
	Nodes      int       `json:"nodes"`
	Bytes      int       `json:"bytes"`
	Noise      string    `json:"noise"`
	CalmUS     float64   `json:"calm_us"` // without noise
	P5         float64   `json:"p5_us"`
	P50        float64   `json:"p50_us"`
	P95        float64   `json:"p95_us"`
	Spread     float64   `json:"spread"`   // 95th percentile less the 5th, as a share of the median
	TimesUS    []float64 `json:"times_us"` // in ascending order
	Seed       uint64    `json:"seed"`     // of the first
}

// under runs a case again and again under a noise.
func (n noise) under(s *sheet, c Case, runs int) (spreadRow, error) {
	return measured(s, func() (spreadRow, error) { return n.run(s, c, runs) })
}

func (n noise) run(s *sheet, c Case, runs int) (spreadRow, error) {
	hosts := c.Net.Tree.Hosts
	row := spreadRow{
		Collective: c.Collective, Algorithm: c.Algorithm, Nodes: hosts, Bytes: c.Bytes, Noise: n.name, Seed: s.Seed,
	}
	calm, err := c.Run(nil)
	if err != nil {
		return row, err
	}
	row.CalmUS = calm.TimeUS
	s.step("%s: %d times a %s of %s by %s, %s", s.name, runs, c.Collective, chart.Size(float64(c.Bytes)), c.Algorithm,
		n.name)
	// An operation that noise makes longer than that ends in peace.
	until := 5*time.Duration(calm.TimeUS*1e3) + 10*n.gap
	for i := range runs {
		c.Seed = s.Seed + uint64(i)
		c.Net.Faults.Pauses = n.pauses(hosts, until, c.Seed)
		o, err := c.Run(nil)
		if err != nil {
			return row, err
		}
		row.TimesUS = append(row.TimesUS, o.TimeUS)
	}
	slices.Sort(row.TimesUS)
	row.P5, row.P50, row.P95 = quantile(row.TimesUS, 0.05), quantile(row.TimesUS, 0.5), quantile(row.TimesUS, 0.95)
	row.Spread = (row.P95 - row.P5) / row.P50
	return row, nil
}

// quantile returns a quantile of values in ascending order: the least value that so large a share of them does not
// exceed.
func quantile(sorted []float64, share float64) float64 {
	return sorted[min(len(sorted)-1, max(0, int(share*float64(len(sorted))+0.999999)-1))]
}

// variability shows how much the times of operations differ where hosts stop now and then (VI-B c).
func variability(s *sheet) error {
	nodes, runs := pick(s, 64, 8), pick(s, 100, 5)
	sizes := pick(s, doublings(4<<10, 256<<10), []float64{4 << 10, 32 << 10})
	last := len(sizes) - 1
	for _, what := range []struct {
		collective, title string
		algorithms        []string
	}{
		{"allgather", "Allgather", []string{Multicast, "ring"}},
		{"broadcast", "Broadcast", []string{Multicast, "knomial", "binary"}},
	} {
		spread := chart.New(fmt.Sprintf("%s on %d nodes whose hosts stop now and then", what.title, nodes), "bytes a rank",
			"5th to 95th of a hundred times, % of the median")
		spread.LogX(chart.Size, sizes...)
		shares := chart.New(fmt.Sprintf("%s of %s on %d nodes whose hosts stop: %s", what.title, chart.Size(sizes[last]),
			nodes, noises[0].name), "time, to that without noise", "share of operations, %")
		most := 0.0
		for _, n := range noises {
			spreads := map[string][]float64{}
			for _, algorithm := range what.algorithms {
				var pts []chart.Point
				var large spreadRow
				for _, size := range sizes {
					row, err := n.under(s, Case{
						Collective: what.collective, Algorithm: algorithm, Bytes: int(size), Segment: packetBytes, Net: testbed(nodes),
					}, runs)
					if err != nil {
						return err
					}
					pts = append(pts, chart.Point{X: size, Y: 100 * row.Spread})
					spreads[algorithm] = append(spreads[algorithm], row.Spread)
					most, large = max(most, 100*row.Spread), row
				}
				spread.Line(algorithm+", "+n.name, pts)
				if n == noises[0] {
					shares.Line(algorithm, steps(large.TimesUS, large.CalmUS))
				}
			}
			for _, other := range what.algorithms[1:] {
				for _, i := range []int{0, last} {
					mine, theirs := spreads[Multicast][i], spreads[other][i]
					paper := "significantly smaller, for large messages"
					if i == 0 {
						paper = "not given for small ones"
					}
					claim := s.claim(fmt.Sprintf("spread of %s of %s, %s: multicast and %s", what.title, chart.Size(sizes[i]), n.name,
						other), paper,
						"%.1f and %.1f %%", 100*mine, 100*theirs)
					if i == last {
						claim.agrees(atMost(0.8), mine/max(theirs, 1e-9)) // a spread of nothing is smaller than any
					}
				}
			}
		}
		spread.Y.Min, spread.Y.Max = 0, 1.6*most
		shares.Y.Min, shares.Y.Max = 0, 150
		shares.Y.Tick.Marker = chart.TicksAt(chart.Plain, []float64{0, 20, 40, 60, 80, 100})
		s.chart(what.collective, spread)
		s.chart(what.collective+"-times", shares)
	}
	return nil
}

// steps are how many of a hundred took up to how much of the time without noise.
func steps(sorted []float64, calm float64) []chart.Point {
	var pts []chart.Point
	for i, t := range sorted {
		pts = append(pts, chart.Point{X: t / calm, Y: 100 * float64(i+1) / float64(len(sorted))})
	}
	return pts
}
