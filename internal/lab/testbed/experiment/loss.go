package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// lossRow is an Allgather on links that lose frames.
type lossRow struct {
	Row
	Goodput  float64 `json:"goodput_bps"` // N(P-1) over the time
	Lossless float64 `json:"of_lossless"` // the same, to this peer's without loss
}

// These end a run that will not, the second one in a look: three Allgathers that take a second or
// two without loss.
const (
	lossLimit = time.Minute
	lookLimit = 30 * time.Second
)

// loss measures Allgathers while every host's link loses frames in both directions.
func loss(l *lab) error {
	hosts := or(l.Hosts, 4)[0]
	rate := or(l.Rates, 200e6)[0]
	n := or(l.Bytes, 4<<20)[0]
	losses := points(l, l.Losses, []float64{0, 0.0001, 0.001, 0.01, 0.05, 0.1}, []float64{0, 0.001, 0.01, 0.05})
	if l.Limit == 0 {
		if l.limit = lossLimit; l.looks() {
			l.limit = lookLimit
		}
	}
	tb, err := l.bed(testbed.Spec{Hosts: hosts, Rate: rate})
	if err != nil {
		return err
	}
	peers := l.peers(ours, ring, gloo)
	var works []work
	for _, p := range losses {
		for _, peer := range peers {
			w := work{peer: peer, collective: "allgather", bytes: []int{n}, iters: 2, warmup: 1, loss: p, mayFail: true}
			works = append(works, w)
			if w.tcp = "reno"; peer == gloo && l.tcpOf(work{}) != w.tcp {
				works = append(works, w)
			}
		}
	}
	l.expect(len(works) * l.Rounds)
	found, err := l.compare(tb, works...)
	if err != nil {
		return err
	}
	t := l.table(fmt.Sprintf("Allgather of %s on %d hosts, links of %s that lose frames in both directions",
		chart.Size(float64(n)), hosts, config.FormatRate(rate)),
		"loss", "peer", "TCP", "ms", "goodput Mbit/s", "of lossless", "to ours")
	var rows []lossRow
	for _, r := range found {
		row := lossRow{Row: r}
		if r.TimeUS > 0 {
			row.Goodput = float64(n*(hosts-1)) * 8 / r.TimeUS * 1e6
		}
		for _, calm := range found {
			if calm.Peer == r.Peer && calm.TCP == r.TCP && calm.Loss == 0 {
				row.Lossless = fraction(calm.TimeUS, r.TimeUS)
			}
		}
		rows = append(rows, row)
		l.row(row)
	}
	for _, r := range rows {
		ratio := ""
		for _, o := range rows {
			if o.Peer == ours && o.Loss == r.Loss && o.TimeUS > 0 && r.TimeUS > 0 {
				ratio = number(r.TimeUS/o.TimeUS) + "x"
			}
		}
		t.row(chart.Percent(r.Loss), r.Peer, r.TCP, milliseconds(r.Row), fmt.Sprintf("%.1f", r.Goodput/1e6),
			percent(r.Lossless), ratio)
		if want, asked := map[float64]float64{0.001: 0.97, 0.01: 0.9, 0.05: 0.75}[r.Loss]; asked && r.Peer == ours {
			l.goal(fmt.Sprintf("goodput at %s loss to that without", chart.Percent(r.Loss)), "at least "+percent(want),
				percent(r.Lossless), r.Lossless >= want)
		}
		if r.Ended != "" {
			l.remark("%s by %s at %s loss, after %d rounds: %s.", r.Peer, r.TCP, chart.Percent(r.Loss), len(r.RoundsUS), r.Ended)
		}
	}
	l.remark("A datagram to P-1 receivers passes 2 links on each way: at a loss of p, a receiver lacks nearly 2p. Loss " +
		"is there from the start, while ranks join, too. Ours repairs over TCP.")
	if !l.stopped() {
		l.chart("", lossChart(rate, losses, rows))
	}
	return nil
}

func lossChart(rate float64, losses []float64, rows []lossRow) *chart.Chart {
	c := chart.New(fmt.Sprintf("Allgather of %s on %d hosts, links of %s", chart.Size(float64(rows[0].Bytes)),
		rows[0].Hosts, chart.Rate(rate)),
		"loss of every link in each direction", "goodput, Mbit/s")
	least := 1.0
	for _, p := range losses {
		if p > 0 {
			least = min(least, p)
		}
	}
	at := func(loss float64) float64 { return max(loss, least/4) } // no logarithm of 0
	var ticks []float64
	for _, p := range losses {
		ticks = append(ticks, at(p))
	}
	c.LogX(func(v float64) string {
		if v < least {
			return "0"
		}
		return chart.Percent(v)
	}, ticks...)
	type series struct{ peer, tcp string }
	var all []series
	for _, r := range rows {
		if s := (series{r.Peer, r.TCP}); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, p := range all {
		var pts []chart.Point
		for _, r := range rows {
			if r.Peer == p.peer && r.TCP == p.tcp {
				pts = append(pts, chart.Point{X: at(r.Loss), Y: r.Goodput / 1e6}) // 0: it did not end
			}
		}
		c.Line(peerName(p.peer)+", TCP by "+p.tcp, pts)
	}
	c.Level("link", slices.Min(ticks), slices.Max(ticks), rate/1e6)
	c.Y.Min, c.Y.Max = 0, 1.4*rate/1e6
	c.X.Min, c.X.Max = slices.Min(ticks)/1.1, slices.Max(ticks)*1.1
	return c
}
