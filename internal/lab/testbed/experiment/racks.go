package experiment

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// racksRow is an Allgather of ranks that were dealt to two racks by turns.
type racksRow struct {
	Row
	Order []int   `json:"hosts_in_order"` // of the ranks; the first half of all hosts is one rack
	Trunk float64 `json:"trunk_bps"`      // of the link from each rack to what joins them
	Racks bool    `json:"racks_known"`    // MCAST_TOPOLOGY said which rack a host is in
	// Bytes that leave the busier rack by the kernel's counters, frames with all headers, an operation;
	// and what a ring must send there of payload, and how long the trunk takes for that.
	Out     float64 `json:"rack_sent_bytes"`
	LawOut  float64 `json:"law_rack_sent_bytes"`
	IdealUS float64 `json:"ideal_us"`
}

// Ways to go round racks.
const (
	byNumber = "in the order of numbers"
	byRack   = "with MCAST_TOPOLOGY"
)

// byTurns deals hosts to two racks by turns: the first of each, the second of each and so on.
func byTurns(hosts int) (order []int) {
	for h := range hosts / 2 {
		order = append(order, h, hosts/2+h)
	}
	return order
}

// racksLaw is what a ring through all hosts sends out of a rack: each of its edges passes every shard
// but those of the host that it leads to. By turns every second edge leaves this rack, else one does.
func racksLaw(known bool, hosts, perHost, n int) float64 {
	edges := hosts / 2
	if known {
		edges = 1
	}
	return float64(edges * (hosts - 1) * perHost * n)
}

// racks measures Allgathers where ranks' numbers say nothing of racks and no multicast passes.
func racks(l *lab) error {
	hosts, perHost := or(l.Hosts, 8)[0], or(l.Ranks, 1)[0]
	if hosts < 4 || hosts%2 != 0 {
		return fmt.Errorf("%d hosts in two racks by turns: want an even number, at least 4", hosts)
	}
	rate, n := or(l.Rates, 500e6)[0], or(l.Bytes, 1<<20)[0]
	if rate == 0 {
		return fmt.Errorf("trunks without limit show nothing: want a rate, which hosts' links have as well")
	}
	tb, err := l.bed(testbed.Spec{Hosts: hosts, Leaves: 2, Spines: 1, Rate: rate, Trunk: rate})
	if err != nil {
		return err
	}
	var works []work
	for _, way := range []string{byNumber, byRack} {
		works = append(works, work{
			peer: ours, variant: way, collective: "allgather", bytes: []int{n}, iters: 5, warmup: 2, perHost: perHost,
			env: []string{"MCAST_MULTICAST=off"}, hosts: byTurns(hosts), racks: way == byRack,
		})
	}
	l.expect(len(works) * (l.Rounds + 2))
	found, err := l.compare(tb, works...)
	if err != nil {
		return err
	}
	t := l.table(fmt.Sprintf("%d hosts of %d ranks in two racks by turns, links and trunks of %s, no multicast", hosts,
		perHost, config.FormatRate(rate)),
		"bytes", "way", "ms", "share the trunk needs", "out of a rack, MiB", "to its law")
	for i, w := range works {
		if l.stopped() || i >= len(found) {
			break
		}
		c, err := l.count(tb, w, 5)
		if err != nil {
			return err
		}
		r := racksRow{
			Row: found[i], Order: w.hosts, Trunk: rate, Racks: w.racks, LawOut: racksLaw(w.racks, hosts, perHost, n),
		}
		r.Out, r.IdealUS = slices.Max(c.outOfLeaf), ideal(r.LawOut, rate)
		l.row(r)
		t.row(chart.Size(float64(n)), w.variant, milliseconds(r.Row), cell(fraction(r.IdealUS, r.TimeUS)),
			number(r.Out/(1<<20)), cell(r.Out/r.LawOut))
		l.goal(fmt.Sprintf("Allgather of %s %s, bytes out of a rack to its law", chart.Size(float64(n)), w.variant),
			"at most 1.03",
			fmt.Sprintf("%.3f", r.Out/r.LawOut), r.Out <= 1.03*r.LawOut)
	}
	return nil
}
