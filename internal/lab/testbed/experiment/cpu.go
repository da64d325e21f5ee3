package experiment

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// cpu measures Allgathers of ranks that share hosts, on links without limit: processors alone limit
// them.
func cpu(l *lab) error {
	all, err := shapes(or(l.Hosts, 1, 2), or(l.Ranks, 8, 4))
	if err != nil {
		return err
	}
	sizes := or(l.Bytes, 4<<20)
	rate := or(l.Rates, 0)[0]
	t := l.table("Allgather, links of "+config.FormatRate(rate)+
		": CPU is of all ranks, user and system, for an operation and for a GB that it brings them",
		"hosts x ranks", "bytes", "way", "ms", "to nodes", "CPU s", "CPU s a GB", "to nodes")
	ways := slices.DeleteFunc(l.ways(), way.switched) // no Allgather goes through a node
	l.expect(len(all) * l.Rounds * len(ways))
	for _, s := range all {
		if l.stopped() {
			break
		}
		tb, err := l.bed(testbed.Spec{Hosts: s.hosts, Rate: rate})
		if err != nil {
			return err
		}
		var works []work
		for _, w := range ways {
			job := w.work(l, "allgather", s, sizes...)
			job.iters, job.warmup = 7, 2
			works = append(works, job)
		}
		rows, err := l.compare(tb, works...)
		if err != nil {
			return err
		}
		if err := asNodes(s, rows); err != nil {
			return err
		}
		for _, n := range sizes {
			l.cpuTable(t, s, n, rows)
		}
	}
	l.remark("Checks of the received bytes are not included. The kernel counts the time of interrupts for the process " +
		"that it interrupts, and the time of its own threads not at all.")
	return nil
}

func (l *lab) cpuTable(t *table, s shape, n int, rows []Row) {
	var base Row
	for _, r := range rows {
		if r.Variant == string(nodesWay) && r.Bytes == n {
			base = r
		}
	}
	brought := float64(s.ranks()*s.ranks()*n) / 1e9
	for _, r := range rows {
		if r.Bytes == n {
			l.row(r)
			t.row(s.String(), chart.Size(float64(n)), r.Variant, milliseconds(r), times(fraction(r.TimeUS, base.TimeUS)),
				cell(r.CPU), cell(r.CPU/brought), times(fraction(r.CPU, base.CPU)))
		}
	}
}

// times writes a ratio; one that is not known is 0.
func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2fx", ratio)
}
