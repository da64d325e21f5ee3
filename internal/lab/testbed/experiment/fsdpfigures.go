package experiment

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

func (l *lab) fsdpTable(rows []*trained) {
	t := l.table("A step of FSDP2 (byte GPT, 8 blocks of 256), ms", "rate", "variant", "over", "step", "compute",
		"without a core", "exposed AG", "exposed RS", "CPU", "MB", "link", "to ours")
	for _, r := range rows {
		ratio := ""
		if mine := oursOf(rows, r); mine != nil && mine != r {
			ratio = fmt.Sprintf("%.2f", r.TimeS/mine.TimeS)
		}
		t.row(config.FormatRate(r.Rate), r.variant(), r.name(), ms(r.TimeS), ms(r.Parts.ComputeS),
			ms(max(0, r.Parts.ComputeS-r.Parts.BusyS)), ms(r.Parts.GatherS), ms(r.Parts.ScatterS), ms(r.Parts.CPUS),
			number(r.trace().carried()/1e6), ms(r.linkS()), ratio)
	}
}

// linkS is how long the link was needed for in a step, so that none can be faster.
func (r *trained) linkS() float64 { return r.trace().carried() * 8 / r.Rate }

func ms(seconds float64) string { return fmt.Sprintf("%.0f", seconds*1e3) }

// oursOf returns our training of the same variant at the same rate.
func oursOf(rows []*trained, r *trained) *trained {
	i := slices.IndexFunc(rows,
		func(o *trained) bool { return o.Peer == ours && o.Rate == r.Rate && o.variant() == r.variant() })
	if i < 0 {
		return nil
	}
	return rows[i]
}

func (l *lab) fsdpGoal(rows []*trained) {
	for _, r := range rows {
		if mine := oursOf(rows, r); mine != nil && r.Peer == gloo && r.Rate == 200e6 && !r.Keep {
			ratio := r.TimeS / mine.TimeS
			l.goal(fmt.Sprintf("FSDP2 step at 200mbit in %s, %s to ours", r.variant(), r.name()), "at least 3",
				fmt.Sprintf("%.2f, and %.2f were a step of ours nothing but its bytes on the link", ratio, r.TimeS/mine.linkS()),
				ratio >= 3)
		}
	}
}

func (l *lab) fsdpCharts(rows []*trained) {
	var rates []float64
	var variants []string
	for _, r := range rows {
		rates, variants = append(rates, r.Rate), append(variants, r.variant())
	}
	rates, variants = distinct(rates), distinct(variants)
	for _, v := range variants {
		of := slices.DeleteFunc(slices.Clone(rows), func(r *trained) bool { return r.variant() != v })
		if slices.ContainsFunc(of, func(r *trained) bool { return r.Keep }) {
			continue // at one rate
		}
		l.chart("-"+v, stepsChart(v, of))
	}
	for _, rate := range rates {
		for _, v := range variants[:min(2, len(variants))] {
			of := slices.DeleteFunc(slices.Clone(rows), func(r *trained) bool { return r.Rate != rate || r.variant() != v })
			if len(of) > 0 {
				l.chart("-trace-"+config.FormatRate(rate)+"-"+strings.ReplaceAll(v, ", ", "-"), traceChart(rate, v, of))
			}
		}
	}
}

// distinct drops repetitions, in order of appearance.
func distinct[T comparable](values []T) (once []T) {
	for _, v := range values {
		if !slices.Contains(once, v) {
			once = append(once, v)
		}
	}
	return once
}

// stepsChart draws times relative to the serial gloo's, in their parts, a bar a rate and training.
func stepsChart(variant string, rows []*trained) *chart.Chart {
	c := chart.New("A step of FSDP2 in "+variant+": seconds by link rate", "", "share of the slowest at this rate")
	labels := make([]string, len(rows))
	parts := make([][]float64, 3)
	for i, r := range rows {
		labels[i] = fmt.Sprintf("%s\n%s\n%s\n%.2f s", chart.Rate(r.Rate), r.Peer, r.Schedule, r.TimeS)
		slowest := 0.0
		for _, o := range rows {
			if o.Rate == r.Rate {
				slowest = max(slowest, o.Parts.StepS)
			}
		}
		for p, s := range []float64{r.Parts.ComputeS, r.Parts.GatherS, r.Parts.ScatterS} {
			parts[p] = append(parts[p], s/slowest)
		}
	}
	c.Stack(labels, []string{"compute", "waiting for Allgather", "waiting for Reduce-Scatter"}, parts)
	c.X.Tick.Label.Font.Size = 6
	c.Y.Min, c.Y.Max = 0, 1.25
	return c
}

// The lanes of a trace, from top to bottom.
var lanes = []struct {
	name string
	tone color.Color
}{
	{"Allgathers in flight", color.RGBA{214, 69, 69, 255}},
	{"Reduce-Scatters in flight", color.RGBA{240, 160, 75, 255}},
	{"training waits", color.RGBA{60, 60, 60, 255}},
	{"link, received", color.RGBA{11, 110, 153, 255}},
	{"link, sent", color.RGBA{143, 211, 196, 255}},
}

// traceChart draws one step of each training below one another, on one axis of time.
func traceChart(rate float64, variant string, rows []*trained) *chart.Chart {
	c := chart.New(fmt.Sprintf("One step of FSDP2 in %s on links of %s", variant, chart.Rate(rate)), "seconds", "")
	var ticks plot.ConstantTicks
	y := 0.0
	for _, r := range rows {
		t := r.trace()
		for i, lane := range lanes {
			y--
			ticks = append(ticks, plot.Tick{Value: y + 0.4, Label: fmt.Sprintf("%s, %s: %s", r.Peer, r.Schedule, lane.name)})
			c.Add(area(lane.tone, t.lane(i, rate), y))
		}
		y--
	}
	c.Y.Tick.Marker = ticks
	c.Y.Tick.Label.Font.Size = 7
	c.Y.Min, c.Y.Max = y, 0.2
	c.X.Min = 0
	return c
}

// lane returns the outline of a lane, heights from 0 to 0.8.
func (t trace) lane(i int, rate float64) []chart.Point {
	switch i {
	case 0, 1:
		return boxes(t.Events, []string{"allgather", "reduce_scatter"}[i])
	case 2:
		return boxes(t.Waits, "")
	}
	if rate == 0 {
		return nil
	}
	var line []chart.Point
	for k := 1; k < len(t.Samples); k++ {
		a, b := t.Samples[k-1], t.Samples[k]
		bytes := b.Received - a.Received
		if i == 4 {
			bytes = b.Sent - a.Sent
		}
		share := min(1, bytes*8/rate/(b.AtS-a.AtS))
		line = append(line, chart.Point{X: a.AtS, Y: 0.8 * share}, chart.Point{X: b.AtS, Y: 0.8 * share})
	}
	return line
}

// boxes returns the outline of the union of the flights of a kind, or of any.
func boxes(all []flight, kind string) []chart.Point {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b flight) int { return cmp.Compare(a.StartS, b.StartS) })
	var line []chart.Point
	end := 0.0
	for _, f := range sorted {
		if kind != "" && f.Kind != kind || f.EndS <= end {
			continue
		}
		start := max(f.StartS, end)
		line = append(line, chart.Point{X: start}, chart.Point{X: start, Y: 0.8}, chart.Point{X: f.EndS, Y: 0.8},
			chart.Point{X: f.EndS})
		end = f.EndS
	}
	return line
}

// area fills what lies below a line, on a base.
func area(tone color.Color, line []chart.Point, base float64) plot.Plotter {
	ring := plotter.XYs{{X: 0, Y: base}}
	for _, p := range line {
		ring = append(ring, chart.Point{X: p.X, Y: base + p.Y})
	}
	ring = append(ring, chart.Point{X: ring[len(ring)-1].X, Y: base})
	p, err := plotter.NewPolygon(ring)
	if err != nil {
		panic(err) // it has points, all finite
	}
	p.Color, p.Width = tone, 0
	return p
}
