package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// overlapRow is an Allgather, a Reduce-Scatter, or both together ("overlap").
type overlapRow struct {
	Row
	IdealUS float64 `json:"ideal_us"`            // both together: P*N/B with multicast and aggregation, 2(P-1)N/B by rings
	S       float64 `json:"s,omitempty"`         // both together: this peer's time to ours
	Law     float64 `json:"two_less_two_over_p"` // what S can be at most
}

// lateness is what links with more than 8 hosts make up for after a late timer: so many ports on
// few cores are late by more than the default. To operations that long it adds next to nothing.
const lateness = 5 * time.Millisecond

// law is 2 - 2/P, what two rings take longer than multicast and aggregation (Khalilov et al., SC24,
// appendix B).
func law(ranks int) float64 { return 2 - 2/float64(ranks) }

// idealOverlap is how long the busiest link takes for both collectives. A ring
// sends P-1 shards for each; ours sends one for the Allgather, and P-1 for the
// Reduce-Scatter. gloo has a ring for the one, and for the other an Allreduce, which is two.
func idealOverlap(peer string, ranks, bytes int, rate float64) float64 {
	shards := ranks
	switch peer {
	case ring:
		shards = 2 * (ranks - 1)
	case gloo:
		shards = 3 * (ranks - 1)
	}
	return ideal(float64(shards*bytes), rate)
}

// overlap measures an Allgather and a Reduce-Scatter together, ours and by rings.
func overlap(l *lab) error {
	rate := or(l.Rates, 200e6)[0]
	n := or(l.Bytes, 4<<20)[0]
	t := l.table(fmt.Sprintf("Allgather and Reduce-Scatter of %s a rank in f32 together, links of %s; the link of mcast "+
		"switch has no limit", chart.Size(float64(n)), config.FormatRate(rate)),
		"hosts", "peer", "allgather ms", "reduce-scatter ms", "both ms", "ideal ms", "of ideal", "S", "2-2/P", "S to law")
	var all []overlapRow
	sizes := points(l, l.Hosts, []int{2, 4, 8, 16}, []int{2, 4, 8})
	for _, hosts := range sizes {
		l.expect(len(l.peers(overlapPeers(hosts)...)) * l.Rounds)
	}
	for _, hosts := range sizes {
		if l.stopped() {
			break
		}
		rows, err := l.overlapAt(t, hosts, rate, n)
		if err != nil {
			return err
		}
		all = append(all, rows...)
	}
	l.overlapCharts(rate, all)
	l.remark("mcast switch has a namespace of its own, on a port of the network switch without a limit, as if the two " +
		"were one.")
	if slices.Max(sizes) > 8 && l.Burst == 0 {
		l.remark("Links of more than 8 hosts pass %v of their rate at once after a pause, in place of 2 ms.", lateness)
	}
	l.remark("S over 2 - 2/P is the share that ours reaches of its ideal, over the share that the rings reach of theirs.")
	return nil
}

func (l *lab) overlapAt(t *table, hosts int, rate float64, n int) ([]overlapRow, error) {
	spec := testbed.Spec{Hosts: hosts, Rate: rate}
	if hosts > 8 {
		spec.Burst = int(rate / 8 * lateness.Seconds())
	}
	tb, err := l.bedWithNodes(spec)
	if err != nil {
		return nil, err
	}
	var works []work
	for _, p := range l.peers(overlapPeers(hosts)...) {
		w := work{peer: p, collective: "overlap", bytes: []int{n}, iters: 2, warmup: 1}
		if p == ours {
			w.nodes = l.nodes
		}
		if hosts > 8 {
			w.iters = 1
		}
		works = append(works, w)
	}
	rows, err := l.compare(tb, works...)
	if err != nil {
		return nil, err
	}
	mine, _ := rowOf(rows, ours, "overlap", n)
	var done []overlapRow
	for _, r := range rows {
		row := overlapRow{Row: r}
		if r.Collective == "overlap" {
			row.IdealUS, row.S, row.Law = idealOverlap(r.Peer, hosts, n, rate), fraction(r.TimeUS, mine.TimeUS), law(hosts)
			l.overlapTable(t, row, rows)
			done = append(done, row)
			if r.Peer == ring {
				l.overlapGoal(row)
			}
		}
		l.row(row)
	}
	return done, nil
}

// overlapPeers are those compared on so many hosts.
func overlapPeers(hosts int) []string {
	if hosts > 8 {
		return []string{ours, ring} // gloo's takes minutes
	}
	return []string{ours, ring, gloo}
}

func (l *lab) overlapTable(t *table, r overlapRow, rows []Row) {
	gather, _ := rowOf(rows, r.Peer, "allgather", r.Bytes)
	scatter, _ := rowOf(rows, r.Peer, "reducescatter", r.Bytes)
	s, most, share := "", "", ""
	if r.Peer != ours {
		s = fmt.Sprintf("%.3f", r.S)
	}
	if r.Peer == ring {
		most, share = fmt.Sprintf("%.3f", r.Law), fmt.Sprintf("%.3f", r.S/r.Law)
	}
	t.row(strconv.Itoa(r.Hosts), r.Peer, milliseconds(gather), milliseconds(scatter), milliseconds(r.Row),
		number(r.IdealUS/1e3),
		fmt.Sprintf("%.3f", fraction(r.IdealUS, r.TimeUS)), s, most, share)
}

func (l *lab) overlapGoal(r overlapRow) {
	want := 0.95
	switch {
	case r.Hosts >= 16:
		want = 0.9
	case r.Hosts < 4:
		return // nothing was promised
	}
	l.goal(fmt.Sprintf("S on %d hosts over 2 - 2/P", r.Hosts), fmt.Sprintf("at least %g", want),
		fmt.Sprintf("%.3f (S = %.3f)", r.S/r.Law, r.S), r.S >= want*r.Law)
}

func (l *lab) overlapCharts(rate float64, rows []overlapRow) {
	s := chart.New(fmt.Sprintf("Allgather and Reduce-Scatter together at %s: rings to ours", chart.Rate(rate)), "hosts",
		"S: rings take so many times as long")
	share := chart.New(fmt.Sprintf("Both together at %s: how much of what links allow", chart.Rate(rate)), "hosts",
		"share of the ideal")
	var hosts []float64
	for _, p := range []string{ours, ring, gloo} {
		var speed, part []chart.Point
		for _, r := range rows {
			if r.Peer != p || r.TimeUS == 0 {
				continue
			}
			x := float64(r.Hosts)
			hosts = append(hosts, x)
			speed = append(speed, chart.Point{X: x, Y: r.S})
			part = append(part, chart.Point{X: x, Y: r.IdealUS / r.TimeUS})
		}
		if len(part) == 0 {
			continue
		}
		share.Line(peerName(p), part)
		if p == ring {
			s.Line("measured, ring + ring", speed)
		}
	}
	if len(hosts) == 0 {
		return
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	var curve []chart.Point
	for _, p := range hosts {
		curve = append(curve, chart.Point{X: p, Y: law(int(p))})
	}
	s.Claim("2 - 2/P", curve...)
	for _, c := range []*chart.Chart{s, share} {
		c.LogX(chart.Plain, hosts...)
		c.X.Min, c.X.Max = hosts[0]/1.1, hosts[len(hosts)-1]*1.1
	}
	s.Y.Min, s.Y.Max = 0, 2.4
	share.Y.Min, share.Y.Max = 0, 1.3
	l.chart("", s)
	l.chart("-share", share)
}
