package experiment

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// allgatherRow is an Allgather at a rate.
type allgatherRow struct {
	Row
	Fraction  float64 `json:"fraction"`    // of the ideal, N(P-1)/B; 0: links are unlimited, or it did not end
	SentRatio float64 `json:"sent_over_n"` // bytes that the busiest host NIC sends an operation, over N; 0: not counted
}

// ideal is how long a receiver's link takes for so many bytes, in microseconds.
func ideal(bytes, rate float64) float64 { return bytes * 8 / rate * 1e6 }

// fraction is how much of an ideal time a measured one reaches; 0 where nothing was measured.
func fraction(ideal, measured float64) float64 {
	if measured == 0 {
		return 0
	}
	return ideal / measured
}

// allgather measures Allgathers on links with a rate, and large ones on links without.
func allgather(l *lab) error {
	hosts := or(l.Hosts, 4)[0]
	sizes := points(l, l.Bytes, []int{1 << 20, 4 << 20, 16 << 20}, []int{1 << 20, 4 << 20})
	t := l.table(fmt.Sprintf("Allgather on %d hosts: share of N(P-1)/B, and bytes sent by the busiest NIC", hosts),
		"rate", "bytes", "peer", "ms", "share", "sent / N", "to ours")
	rates := points(l, l.Rates, []float64{200e6, 500e6, 1e9, 0}, []float64{200e6, 1e9})
	peers := len(l.peers(ours, ring, gloo))
	for _, rate := range rates {
		l.expect(peers * l.Rounds)
		if rate > 0 {
			l.expect(2 * peers * len(sizes)) // counted
		}
	}
	for _, rate := range rates {
		n := sizes
		if rate == 0 && l.Bytes == nil {
			n = []int{64 << 20}
		}
		if l.stopped() {
			break
		}
		if err := l.allgatherAt(t, hosts, rate, n); err != nil {
			return err
		}
	}
	l.remark("Sent is the difference between runs of twice and once as many operations by the kernel's counters: frames " +
		"with all headers, and the barrier before an operation.")
	return nil
}

func (l *lab) allgatherAt(t *table, hosts int, rate float64, sizes []int) error {
	tb, err := l.bed(testbed.Spec{Hosts: hosts, Rate: rate})
	if err != nil {
		return err
	}
	var works []work
	for _, p := range l.peers(ours, ring, gloo) {
		works = append(works, work{peer: p, collective: "allgather", bytes: sizes, iters: 3, warmup: 1})
	}
	rows, err := l.compare(tb, works...)
	if err != nil {
		return err
	}
	if slices.Contains(l.peers(mpi), mpi) && rate > 0 {
		once, err := l.compareRounds(tb, 1,
			work{peer: mpi, collective: "allgather", bytes: sizes, iters: 7, warmup: 2, mayFail: true})
		if err != nil {
			return err
		}
		rows = append(rows, once...)
	}
	var done []allgatherRow
	for _, n := range sizes {
		for _, r := range rows {
			if r.Bytes != n {
				continue
			}
			row := allgatherRow{Row: r}
			if rate > 0 {
				row.Fraction = fraction(ideal(float64(n*(hosts-1)), rate), r.TimeUS)
				if r.Peer != mpi && !l.stopped() {
					c, err := l.count(tb, work{peer: r.Peer, collective: "allgather", bytes: []int{n}}, 2)
					if err != nil {
						return err
					}
					row.SentRatio = slices.Max(c.perHost) / float64(n)
				}
			}
			l.row(row)
			done = append(done, row)
		}
	}
	l.allgatherTable(t, rate, done)
	l.allgatherGoals(rate, done)
	if rate > 0 && hosts > 1 && !l.stopped() {
		l.chart("-"+config.FormatRate(rate), allgatherChart(hosts, rate, sizes, done))
	}
	return nil
}

func (l *lab) allgatherTable(t *table, rate float64, rows []allgatherRow) {
	for _, r := range rows {
		share, sent, times := "", "", ""
		if rate > 0 {
			share = number(r.Fraction)
		}
		if r.SentRatio > 0 {
			sent = number(r.SentRatio)
		}
		if ratio := timeRatio(rows, r); ratio > 0 {
			times = number(ratio) + "x"
		}
		t.row(config.FormatRate(rate), chart.Size(float64(r.Bytes)), r.Peer, milliseconds(r.Row), share, sent, times)
	}
}

// timeRatio is how many times as long as ours a peer took; 0 where one did not end.
func timeRatio(rows []allgatherRow, r allgatherRow) float64 {
	for _, o := range rows {
		if o.Peer == ours && o.Bytes == r.Bytes {
			return fraction(r.TimeUS, o.TimeUS)
		}
	}
	return 0
}

func (l *lab) allgatherGoals(rate float64, rows []allgatherRow) {
	for _, r := range rows {
		at := fmt.Sprintf("Allgather of %s on %d hosts at %s", chart.Size(float64(r.Bytes)), r.Hosts, config.FormatRate(rate))
		switch {
		case r.Peer == ours && rate > 0 && r.Bytes >= 4<<20:
			l.goal(at+", share of N(P-1)/B", "at least 0.95", fmt.Sprintf("%.3f", r.Fraction), r.Fraction >= 0.95)
			l.goal(at+", bytes sent a rank over N", "at most 1.03", fmt.Sprintf("%.3f", r.SentRatio), r.SentRatio <= 1.03)
		case r.Peer == gloo && rate == 0 && r.Bytes >= 64<<20:
			ratio := timeRatio(rows, r)
			l.goal(at+", gloo's time to ours", "at least 2x", fmt.Sprintf("%.2fx", ratio), ratio >= 2)
		}
	}
}

func allgatherChart(hosts int, rate float64, sizes []int, rows []allgatherRow) *chart.Chart {
	c := chart.New(fmt.Sprintf("Allgather on %d hosts, links of %s", hosts, chart.Rate(rate)), "bytes a rank",
		"share of what links allow, N(P-1)/B")
	x := floats(sizes)
	c.LogX(chart.Size, x...)
	for _, p := range Peers {
		var pts []chart.Point
		for _, r := range rows {
			if r.Peer == p && r.Fraction > 0 {
				pts = append(pts, chart.Point{X: float64(r.Bytes), Y: r.Fraction})
			}
		}
		if len(pts) > 0 {
			c.Line(peerName(p), pts)
		}
	}
	c.Level("goal: 0.95", slices.Min(x), slices.Max(x), 0.95)
	c.Y.Min, c.Y.Max = 0, 1.5
	c.X.Min, c.X.Max = slices.Min(x)/1.1, slices.Max(x)*1.1
	return c
}
