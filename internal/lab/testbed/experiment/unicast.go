package experiment

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// unicast measures Allgathers and Broadcasts on a network that carries no multicast.
func unicast(l *lab) error {
	hosts := or(l.Hosts, 4)[0]
	rate := or(l.Rates, 500e6)[0]
	sizes := or(l.Bytes, 64<<10, 1<<20, 4<<20, 16<<20)
	tb, err := l.bed(testbed.Spec{Hosts: hosts, Rate: rate})
	if err != nil {
		return err
	}
	var works []work
	for _, collective := range []string{"allgather", "broadcast"} {
		for _, p := range l.peers(ours, ring, gloo) {
			works = append(works, work{
				peer: p, collective: collective, bytes: sizes, iters: 5, warmup: 2, loss: 1, cast: "multicast",
			})
		}
	}
	l.expect(len(works) * l.Rounds)
	rows, err := l.compare(tb, works...)
	if err != nil {
		return err
	}
	t := l.table(fmt.Sprintf("%d hosts, links of %s, no multicast", hosts, config.FormatRate(rate)),
		"collective", "bytes", "peer", "ms", "to ours")
	for _, collective := range []string{"allgather", "broadcast"} {
		for _, n := range sizes {
			for _, r := range rows {
				if r.Bytes == n && r.Collective == collective {
					l.row(r)
					t.row(collective, chart.Size(float64(n)), r.Peer, milliseconds(r), number(l.unicastRatio(rows, r))+"x")
				}
			}
		}
	}
	return nil
}

// unicastRatio is how many times as long as ours a peer took, which is held to what a ring should
// take and to gloo.
func (l *lab) unicastRatio(rows []Row, r Row) float64 {
	i := slices.IndexFunc(rows, func(o Row) bool {
		return o.Peer == ours && o.Collective == r.Collective && o.Bytes == r.Bytes
	})
	if i < 0 {
		return 0
	}
	ratio := fraction(r.TimeUS, rows[i].TimeUS)
	if least, asked := map[string]float64{ring: 0.95, gloo: 1}[r.Peer]; asked {
		l.goal(fmt.Sprintf("%s of %s: %s's time to ours", r.Collective, chart.Size(float64(r.Bytes)), peerName(r.Peer)),
			fmt.Sprintf("at least %v", least), number(ratio), ratio >= least)
	}
	return ratio
}
