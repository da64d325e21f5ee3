package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// kind is a sort of job that shares its hosts with another.
type kind struct {
	name       string
	work       work
	shards     func(ranks int) int // how many times Bytes its busiest link takes
	background bool                // it gives way to ours that are not
}

// tcpStream is a stream from host to host to host, as large files go.
const tcpStream = "TCP stream"

// kinds are those of every pair.
func kinds(bytes int, nodes *launch.Nodes) []kind {
	others := func(ranks int) int { return ranks - 1 }
	of := func(peer, collective string, n int) work {
		return work{peer: peer, collective: collective, bytes: []int{n}, iters: 1, warmup: 1}
	}
	scatter, recovery := of(ours, "reducescatter", bytes), of(ours, "allgather", bytes)
	scatter.nodes = nodes
	recovery.env = []string{"MCAST_LOSS=0.01"}
	checkpoint := of(ours, "broadcast", 3*bytes)
	checkpoint.env = []string{"MCAST_CLASS=background"}
	once := func(int) int { return 1 }
	return []kind{
		{"allgather", of(ours, "allgather", bytes), others, false},
		{"reducescatter", scatter, others, false},
		{"recovery", recovery, others, false},
		{"checkpoint", checkpoint, once, true},
		{tcpStream, of(ring, "broadcast", 3*bytes), once, false},
	}
}

// isolationRow is a victim, alone or beside an aggressor.
type isolationRow struct {
	Row
	Victim    string  `json:"victim"`
	Aggressor string  `json:"aggressor"` // empty: none
	Rate      float64 `json:"rate_victim_bps"`
	Kept      float64 `json:"kept"` // Rate to the least of the rate alone and half the link
}

// inside is a checkpoint's traffic by the victim's own processes.
const inside = "checkpoint inside"

const (
	wantKept   = 0.75  // of min(alone, half the link)
	wantBeside = 0.85  // of a job's rate alone, beside a job in the background
	wantLeast  = 0.025 // of the link, for a job in the background
)

// isolation runs two jobs on the same hosts, every pair of kinds.
func isolation(l *lab) error {
	hosts := or(l.Hosts, 4)[0]
	rate := or(l.Rates, 200e6)[0]
	n := or(l.Bytes, 4<<20)[0]
	tb, err := l.bedWithNodes(testbed.Spec{Hosts: hosts, Rate: rate})
	if err != nil {
		return err
	}
	all := kinds(n, l.nodes)
	l.expect(l.Rounds * (len(all)*(1+len(all)) + len(insiders(all))))
	var rows []isolationRow
measuring:
	for round := range l.Rounds {
		for a := -1; a < len(all); a++ { // -1: alone
			rows, err = l.beside(tb, all, a, round, rows)
			if l.stopped() {
				break measuring
			}
			if err != nil {
				return err
			}
		}
		if rows, err = l.victims(tb, insiders(all), inside, round, rows); err != nil && !l.stopped() {
			return err
		}
	}
	if len(rows) > 0 {
		l.isolationResults(rate, all, rows)
	}
	return nil
}

// beside measures all kinds once while aggressor a, one of them, runs.
func (l *lab) beside(tb *testbed.Testbed, all []kind, a, round int, rows []isolationRow) ([]isolationRow, error) {
	aggressor := ""
	if a >= 0 {
		aggressor = all[a].name
		end, err := l.aggress(tb, all[a].work)
		if err != nil {
			return rows, err
		}
		rows, err = l.victims(tb, all, aggressor, round, rows)
		return rows, errors.Join(err, end())
	}
	return l.victims(tb, all, aggressor, round, rows)
}

func (l *lab) victims(
	tb *testbed.Testbed, all []kind, aggressor string, round int, rows []isolationRow,
) ([]isolationRow, error) {
	for _, k := range all {
		l.step("round %d of %d: %s beside %s", round+1, l.Rounds, k.name, or([]string{aggressor}, "none")[0])
		found, err := l.measure(tb, k.work)
		if err != nil {
			return rows, fmt.Errorf("%s beside %q: %w", k.name, aggressor, err)
		}
		for _, r := range found {
			i := find(rows, k.name, aggressor)
			if i < 0 {
				i = len(rows)
				rows = append(rows,
					isolationRow{Row: l.newRow(k.work, r.Collective, r.Bytes), Victim: k.name, Aggressor: aggressor})
			}
			row := &rows[i]
			row.take(r)
			row.Rate = float64(k.shards(row.Hosts)*row.Bytes) * 8 / row.TimeUS * 1e6
		}
	}
	return rows, nil
}

// insiders are the victims that have a group in the background themselves.
func insiders(all []kind) (some []kind) {
	for _, k := range all {
		if k.work.peer == ours && !k.background {
			k.work.flags = []string{fmt.Sprintf("--checkpoint=%d", 3*k.work.bytes[0])}
			some = append(some, k)
		}
	}
	return some
}

func find(rows []isolationRow, victim, aggressor string) int {
	return slices.IndexFunc(rows, func(r isolationRow) bool { return r.Victim == victim && r.Aggressor == aggressor })
}

// errEnough ends an aggressor.
var errEnough = errors.New("measured")

// aggress starts a job that runs until end is called, and returns once its ranks
// have met and fill the links. That it ended before is an error of end.
func (l *lab) aggress(tb *testbed.Testbed, w work) (end func() error, err error) {
	w.iters = 1 << 20
	job, err := l.job(tb, w)
	if err != nil {
		return nil, err
	}
	before, err := tb.Counters()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	run, err := launch.Start(ctx, tb, job)
	if err != nil {
		cancel(err)
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	early := func(err error) error { return fmt.Errorf("the aggressor, %s, ended too early: %w", w.collective, err) }
	end = func() error {
		cancel(errEnough)
		if err := <-ended; !errors.Is(err, errEnough) && l.ctx.Err() == nil {
			return early(err)
		}
		return nil
	}
	late := time.After(l.limit)
	for {
		now, err := tb.Counters()
		if err != nil {
			return nil, errors.Join(err, end())
		}
		if now.Sub(before).Total(testbed.HostNIC).ReceivedBytes > uint64(2*w.bytes[0]*len(tb.Hosts())) {
			return end, nil
		}
		select {
		case err := <-ended:
			cancel(err)
			return nil, early(err)
		case <-late:
			return nil, errors.Join(errors.New("the aggressor sends nothing"), end())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// isolationResults compares with the rate alone and half the link.
func (l *lab) isolationResults(rate float64, all []kind, rows []isolationRow) {
	t := l.table(fmt.Sprintf("Two jobs of %d ranks on the same hosts, links of %s: the victim's rate in Mbit/s, and the "+
		"share that it keeps of min(alone, half the link)", rows[0].Hosts, config.FormatRate(rate)),
		append(append([]string{"victim", "alone"}, names(all)...), inside)...)
	kept := make([][]float64, len(all))
	var low []string
	least := map[string]float64{}
	note := func(goal string, x float64) {
		if y, any := least[goal]; !any || x < y {
			least[goal] = x
		}
	}
	for v, k := range all {
		i := find(rows, k.name, "")
		if i < 0 {
			continue // the experiment was ended before
		}
		alone := rows[i]
		cells := []string{k.name, fmt.Sprintf("%.0f", alone.Rate/1e6)}
		for _, a := range append(slices.Clone(all), kind{name: inside, background: true}) {
			i := find(rows, k.name, a.name)
			if i < 0 {
				continue
			}
			r := &rows[i]
			r.Kept = r.Rate / min(alone.Rate, rate/2)
			if a.name != inside {
				kept[v] = append(kept[v], 100*r.Kept)
			}
			cells = append(cells, fmt.Sprintf("%.0f (%.0f %%)", r.Rate/1e6, 100*r.Kept))
			theirs := a.name == tcpStream
			switch {
			case k.name == tcpStream:
				note(goalTCP, r.Kept)
			case k.background && !a.background && !theirs:
				note(goalBackground, r.Rate/rate)
				continue
			case !k.background && a.background:
				note(goalBeside, r.Rate/alone.Rate)
			default:
				note(goalOurs, r.Kept)
			}
			if r.Kept < wantKept {
				low = append(low, k.name+" beside "+a.name)
			}
		}
		t.row(cells...)
	}
	for _, r := range rows {
		l.row(r)
	}
	for _, g := range []struct {
		name string
		want float64
	}{{goalOurs, wantKept}, {goalBeside, wantBeside}, {goalBackground, wantLeast}, {goalTCP, wantKept}} {
		if x, any := least[g.name]; any {
			l.goal(g.name, "at least "+percent(g.want), percent(x), x >= g.want)
		}
	}
	if low != nil {
		l.remark("Below: %s.", strings.Join(low, ", "))
	}
	l.remark("A rate is what the victim's busiest link carries for it: N(P-1) over the time, of checkpoint traffic and " +
		"the TCP stream N.")
	l.remark("Recovery is an Allgather that throws 1 %% of the datagrams away and fetches them over TCP; checkpoint "+
		"traffic is a Broadcast by a background group, of processes of its own or of the victim's (inside); the TCP "+
		"stream, by %s, goes from host to host to host. Reduce-Scatters go through mcast switch, at a port without a limit.",
		rows[0].TCP)
	if l.stopped() {
		return
	}
	c := chart.New("What a job keeps of its rate alone or half the link, whichever is less, %", "beside", "the job")
	c.Cells(names(all), names(all), kept)
	l.chart("", c)
}

// What isolation is to show.
const (
	goalOurs       = "the least that a job of ours keeps of min(alone, half the link)"
	goalBeside     = "the least that one keeps of its rate alone beside one in the background"
	goalBackground = "the least that one in the background has of the link"
	goalTCP        = "the least that a TCP stream keeps of min(alone, half the link)"
)

func names(all []kind) []string {
	var n []string
	for _, k := range all {
		n = append(n, k.name)
	}
	return n
}
