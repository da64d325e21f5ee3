package experiment

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// nodesRow is an Allgather, a Reduce-Scatter, or both at once ("overlap"), with several ranks on
// each host. Its Variant is a way.
type nodesRow struct {
	Row
	// What the way must move over a host's link in each direction, and how long a link takes for
	// the busier one, of payload alone; 0: there is no law for it.
	LawSent     float64 `json:"law_sent_bytes"`
	LawReceived float64 `json:"law_received_bytes"`
	IdealUS     float64 `json:"ideal_us"`
	// What passes the busiest host's link by the kernel's counters, an operation; 0: not counted.
	Sent     float64 `json:"sent_bytes"`
	Received float64 `json:"received_bytes"`
	// Of both at once: the ring's time to this one's, and what links allow.
	S   float64 `json:"s,omitempty"`
	Law float64 `json:"law_of_s,omitempty"`
}

// shape is how many hosts have how many ranks each.
type shape struct{ hosts, perHost int }

func (s shape) String() string { return fmt.Sprintf("%d x %d", s.hosts, s.perHost) }
func (s shape) ranks() int     { return s.hosts * s.perHost }

// shapes returns the shapes that are asked for: numbers of hosts, each with its number of ranks a
// host.
func shapes(hosts, perHost []int) ([]shape, error) {
	n := max(len(hosts), len(perHost))
	if one := min(len(hosts), len(perHost)); one != n && one != 1 {
		return nil,
			fmt.Errorf("%d numbers of hosts and %d of ranks a host: want as many, or one for all", len(hosts), len(perHost))
	}
	var all []shape
	for i := range n {
		s := shape{hosts[min(i, len(hosts)-1)], perHost[min(i, len(perHost)-1)]}
		if s.hosts < 1 || s.perHost < 1 {
			return nil, fmt.Errorf("%d hosts of %d ranks each are not allowed: want at least 1 of each", s.hosts, s.perHost)
		}
		all = append(all, s)
	}
	return all, nil
}

// flatSetting makes ranks go as if each had a host of its own.
const flatSetting = "MCAST_NODES=off"

// openMPI lets ranks of a host share memory, and chooses what crosses links least: an Allgather in a
// ring (by itself it takes one that crosses them three times as often), and a Reduce-Scatter by a
// butterfly (by itself it reduces everything to one rank).
var openMPI = []string{
	"OMPI_MCA_btl=self,vader,tcp", "OMPI_MCA_coll_tuned_use_dynamic_rules=1",
	"OMPI_MCA_coll_tuned_allgather_algorithm=4", "OMPI_MCA_coll_tuned_reduce_scatter_block_algorithm=4",
}

// work returns what a way does of a collective.
func (w way) work(l *lab, collective string, s shape, bytes ...int) work {
	job := work{
		peer: ours, variant: string(w), collective: collective, bytes: bytes, perHost: s.perHost, iters: 2, warmup: 1,
	}
	if l.looks() {
		job.iters = 1
	}
	if collective != "allgather" {
		job.flags = []string{"--exact"} // ways differ in the order in which they add
	}
	switch w {
	case flatWay, flatSwitchWay:
		job.env = []string{flatSetting}
	case ringWay:
		job.peer = ring
	case glooWay:
		job.peer, job.mayFail = gloo, true
	case mpiWay:
		job.peer, job.mayFail, job.env = mpi, true, openMPI
	}
	if w.switched() {
		job.nodes = l.nodes
	}
	return job
}

// ways returns the ways to measure, in the order of the tables. A look has no time for OpenMPI,
// unless it is asked for.
func (l *lab) ways() (all []way) {
	some := []string{ours, ring, gloo, mpi}
	if l.looks() && l.Peers == nil {
		some = some[:3]
	}
	for _, p := range l.peers(some...) {
		switch p {
		case ours:
			all = append(all, nodesWay, nodesSwitchWay, flatWay, flatSwitchWay)
		case ring:
			all = append(all, ringWay)
		case gloo:
			all = append(all, glooWay)
		case mpi:
			all = append(all, mpiWay)
		}
	}
	return all
}

// switched says whether an aggregation node sums.
func (w way) switched() bool { return w == nodesSwitchWay || w == flatSwitchWay }

// counts says whether a way's traffic is counted: a look counts our two ways with nodes alone.
func (l *lab) counts(w way) bool { return !l.looks() || w == nodesWay || w == nodesSwitchWay }

// countedOnce is how many operations are counted, which move so much that few do.
const countedOnce = 1

// nodes measures ranks that share hosts and their links.
func nodes(l *lab) error {
	all, err := shapes(or(l.Hosts, 4, 2), or(l.Ranks, 4, 8))
	if err != nil {
		return err
	}
	if l.looks() && l.Hosts == nil {
		all = all[:1]
	}
	sizes := points(l, l.Bytes, []int{4 << 20, 16 << 20}, []int{4 << 20})
	rate := or(l.Rates, 1e9)[0]
	if rate == 0 {
		return errors.New("links without limit say nothing of a link's share: want a rate, or the experiment cpu")
	}
	if l.Limit == 0 {
		l.limit = 10 * time.Minute
	}
	ways := l.ways()
	for _, w := range ways {
		l.expect(l.Rounds * len(all))
		if l.counts(w) {
			l.expect(4 * len(all)) // two runs of each of two collectives
		}
	}
	link := config.FormatRate(rate)
	t := l.nodesTables(link)
	for _, s := range all {
		if l.stopped() {
			break
		}
		rows, err := l.nodesAt(s, rate, ways, sizes)
		if err != nil {
			return err
		}
		for _, n := range sizes {
			l.nodesTable(t, s, n, rows)
			l.nodesGoals(s, n, rows)
		}
	}
	l.remark("Shares are of what a way must move of payload over a host's link in the busier direction, at the link's " +
		"rate. The rate counts frames with Ethernet headers: " +
		"at an MTU of 9000, 0.993 is all that TCP can reach. Sent and received are frames, by the kernel's counters at the " +
		"busiest host: the difference between runs of one more operation and one.")
	l.remark("S is the ring's time to a way's for both at once; its law is the S that links alone allow " +
		"(docs/explain/nodes.md). S over its law is the way's share over the ring's. Ranks on too few cores lower it, too.")
	l.remark("mcast switch has a namespace of its own, on a port of the network switch without a limit, as if the two " +
		"were one.")
	return nil
}

// nodesAt measures all ways by turns, and counts their traffic at the first size.
func (l *lab) nodesAt(s shape, rate float64, ways []way, sizes []int) ([]nodesRow, error) {
	tb, err := l.bedWithNodes(testbed.Spec{Hosts: s.hosts, Rate: rate})
	if err != nil {
		return nil, err
	}
	var works []work
	for _, w := range ways {
		works = append(works, w.work(l, "overlap", s, sizes...))
	}
	found, err := l.compare(tb, works...)
	if err != nil {
		return nil, err
	}
	if err := asNodes(s, found); err != nil {
		return nil, err
	}
	rows := nodesRows(s, rate, found)
	for _, w := range ways {
		for _, collective := range []string{"allgather", "reducescatter"} {
			if !l.counts(w) || l.stopped() {
				continue
			}
			c, err := l.count(tb, w.work(l, collective, s, sizes[0]), countedOnce)
			switch {
			case l.stopped():
			case err != nil && w.work(l, collective, s).mayFail:
				l.remark("What %s moves of %s was not counted: %s.", w, collective, l.why(err))
			case err != nil:
				return nil, err
			default:
				if i := findRow(rows, w, collective, sizes[0]); i >= 0 {
					rows[i].Sent, rows[i].Received = slices.Max(c.perHost), slices.Max(c.intoHost)
				}
			}
		}
	}
	for _, r := range rows {
		l.row(r)
	}
	return rows, nil
}

// asNodes says which way's ranks worked as nodes and should not have, or the other way round.
func asNodes(s shape, found []Row) error {
	for _, r := range found {
		want := 0
		if w := way(r.Variant); (w == nodesWay || w == nodesSwitchWay) && s.hosts > 1 && s.perHost > 1 {
			want = s.hosts
		}
		if r.Nodes != want && r.TimeUS > 0 {
			return fmt.Errorf("%s of %v by %s: the ranks of %d hosts worked together, not of %d; MCAST_NODES and MCAST_FABRIC "+
				"decide", r.Collective, s, r.Variant, r.Nodes, want)
		}
	}
	return nil
}

// nodesRows puts laws beside what was measured.
func nodesRows(s shape, rate float64, found []Row) []nodesRow {
	var rows []nodesRow
	for _, r := range found {
		row := nodesRow{Row: r}
		if c, known := way(r.Variant).crosses(r.Collective, s.hosts, s.perHost); known {
			row.LawSent, row.LawReceived = float64(c.Out*r.Bytes), float64(c.In*r.Bytes)
			row.IdealUS = ideal(float64(c.Busiest()*r.Bytes), rate)
		}
		rows = append(rows, row)
	}
	for i := range rows {
		r := &rows[i]
		if rings := findRow(rows, ringWay, "overlap", r.Bytes); r.Collective == "overlap" && rings >= 0 {
			r.S = fraction(rows[rings].TimeUS, r.TimeUS)
		}
		if r.Collective == "overlap" {
			r.Law = way(r.Variant).speedup(s.hosts, s.perHost)
		}
	}
	return rows
}

// findRow returns the index of a row, -1 if there is none.
func findRow(rows []nodesRow, w way, collective string, n int) int {
	return slices.IndexFunc(rows, func(r nodesRow) bool {
		return r.Variant == string(w) && r.Collective == collective && r.Bytes == n
	})
}

// nodesTables are what the experiment prints: times, and bytes.
type nodesTables struct{ times, bytes *table }

func (l *lab) nodesTables(link string) nodesTables {
	return nodesTables{
		l.table("Hosts of several ranks, links of "+link+
			": times, and the share that a way reaches of the least time for its bytes",
			"hosts x ranks", "bytes", "way", "allgather ms", "share", "reduce-scatter ms", "share", "both ms", "share", "CPU s",
			"S", "law", "S to law"),
		l.table("Bytes at the busiest host's link, in brackets the law's: K ranks on a host and P in all, with n bytes each",
			"hosts x ranks", "bytes", "way", "allgather out / Kn", "in / (P-K)n", "reduce-scatter out / (P-K)n", "in / (P-K)n"),
	}
}

func (l *lab) nodesTable(t nodesTables, s shape, n int, rows []nodesRow) {
	size := chart.Size(float64(n))
	others := float64((s.ranks() - s.perHost) * n)
	for _, both := range rows {
		if both.Bytes != n || both.Collective != "overlap" {
			continue
		}
		w := way(both.Variant)
		times, bytes := []string{s.String(), size, both.Variant}, []string{s.String(), size, both.Variant}
		counted := false
		for _, collective := range []string{"allgather", "reducescatter"} {
			i := findRow(rows, w, collective, n)
			if i < 0 { // it ended before it came so far
				times, bytes = append(times, "", ""), append(bytes, "", "")
				continue
			}
			r := rows[i]
			out := others
			if collective == "allgather" {
				out = float64(s.perHost * n)
			}
			times = append(times, milliseconds(r.Row), share(r))
			bytes = append(bytes, toLaw(r.Sent, r.LawSent, out), toLaw(r.Received, r.LawReceived, others))
			counted = counted || r.Sent > 0
		}
		t.times.row(append(times, milliseconds(both.Row), share(both), cell(both.CPU), cell(both.S), cell(both.Law),
			cell(fraction(both.S, both.Law)))...)
		if counted {
			t.bytes.row(bytes...)
		}
	}
}

// share writes what a time reaches of what links allow, where there is a law for it.
func share(r nodesRow) string { return cell(fraction(r.IdealUS, r.TimeUS)) }

// cell writes a number; one that is not known is 0.
func cell(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", v)
}

// toLaw writes bytes to those of a unit, and in brackets what the law says of them.
func toLaw(bytes, law, unit float64) string {
	if unit == 0 || bytes == 0 {
		return ""
	}
	text := fmt.Sprintf("%.3f", bytes/unit)
	if law > 0 {
		text += " (" + number(law/unit) + ")"
	}
	return text
}

// nodesGoals holds ours to what must cross a link once a host.
func (l *lab) nodesGoals(s shape, n int, rows []nodesRow) {
	if s.hosts == 1 {
		return
	}
	others := float64((s.ranks() - s.perHost) * n)
	for _, w := range []way{nodesWay, nodesSwitchWay} {
		for _, collective := range []string{"allgather", "reducescatter"} {
			i := findRow(rows, w, collective, n)
			if i < 0 {
				continue
			}
			r := rows[i]
			at := fmt.Sprintf("%s of %s on %v by %s", collective, chart.Size(float64(n)), s, w)
			reached := fraction(r.IdealUS, r.TimeUS)
			l.goal(at+", share of what a link allows", "at least 0.9", fmt.Sprintf("%.3f", reached), reached >= 0.9)
			moved, what := r.Received, "in"
			if collective == "reducescatter" {
				moved, what = r.Sent, "out"
			}
			if moved > 0 {
				l.goal(fmt.Sprintf("%s, bytes %s over (P-K)n", at, what), "at most 1.03", fmt.Sprintf("%.3f", moved/others),
					moved <= 1.03*others)
			}
		}
	}
}
