package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// trafficRow is what an operation passes at all switch ports (fig. 12 of Khalilov et al. (SC24)).
type trafficRow struct {
	Setting
	Peer       string   `json:"peer"`
	Command    string   `json:"command"`
	Env        []string `json:"env,omitempty"`
	Collective string   `json:"collective"`
	Bytes      int      `json:"bytes"`      // of a rank's shard
	Iterations int      `json:"operations"` // k; counted is the difference between 2k and k of them, over k
	Received   float64  `json:"received_bytes"`
	Sent       float64  `json:"sent_bytes"`
	Ports      float64  `json:"port_bytes"`  // both, as the figure counts
	Expected   float64  `json:"shard_bytes"` // shards in Ports, by the topology; the rest: headers, control messages
	Ended      string   `json:"ended,omitempty"`
}

// algorithmOf is what the simulator calls a peer's way of doing a collective.
func algorithmOf(peer, collective string) string {
	switch {
	case peer == ours:
		return figures.Multicast
	case collective == "allgather":
		return "ring"
	case peer == ring:
		return "chain"
	}
	return "binomial"
}

// The paper has 188 hosts on 12 leaves and 6 spines, as far as one can tell from 18 switches.
const (
	paperHosts  = 188
	paperLeaves = 12
	paperSpines = 6
)

// paperTree is a testbed of so many hosts with as many a leaf as the paper's.
func paperTree(hosts int) testbed.Spec {
	s := testbed.Spec{Hosts: hosts, Leaves: (hosts*paperLeaves + paperHosts - 1) / paperHosts}
	if s.Leaves > 1 {
		s.Spines = paperSpines
	}
	return s
}

// expected is how many bytes of shards pass the switch ports.
func expected(s testbed.Spec, peer, collective string, bytes int) float64 {
	tree := fattree.Config{Hosts: s.Hosts}
	if s.Leaves > 1 {
		tree.Leaves, tree.Spines = s.Leaves, s.Spines
	}
	n, ok := figures.Crossings(tree, collective, algorithmOf(peer, collective))
	if !ok {
		return 0
	}
	return float64(n) * float64(bytes)
}

// crowded is for many ranks on few cores: none may starve long enough to be taken for dead.
var crowded = []string{"GOMAXPROCS=1", "MCAST_TIMEOUT=10m", "MCAST_JOIN_TIMEOUT=10m"}

// traffic reads the switches' port counters around Allgathers and Broadcasts.
func traffic(l *lab) error {
	hosts := points(l, l.Hosts, []int{8, 16, 32, 64, 128, 188}, []int{8, 16, 32})
	n := or(l.Bytes, 64<<10)[0]
	rate := or(l.Rates, 1e9)[0]
	t := l.table(fmt.Sprintf("Bytes at all switch ports, received and sent, of an operation of %s a rank",
		chart.Size(float64(n))),
		"collective", "hosts", "leaves", "peer", "MB", "bytes of shards", "to ours")
	var rows []trafficRow
	const collectives, runs = 2, 2 // of each peer, on so many hosts
	l.expect(len(hosts) * collectives * runs * len(l.peers(ours, ring, gloo)))
	for _, p := range hosts {
		spec := paperTree(p)
		spec.Rate = rate
		tb, err := l.bed(spec)
		if err != nil {
			return err
		}
		for _, collective := range []string{"allgather", "broadcast"} {
			for _, peer := range l.peers(ours, ring, gloo) {
				row, err := l.trafficOf(tb, peer, collective, n)
				if err != nil {
					return err
				}
				l.row(row)
				rows = append(rows, row)
				t.row(collective, fmt.Sprint(p), fmt.Sprint(tb.Spec().Leaves), peer, megabytes(row),
					fmt.Sprintf("%.1f", row.Expected/1e6), toOurs(rows, row))
			}
		}
	}
	for _, collective := range []string{"allgather", "broadcast"} {
		l.chart("-"+collective, trafficChart(collective, n, hosts, rows))
		l.trafficGoals(collective, slices.Max(hosts), rows)
	}
	l.remark("Counted is the difference between runs of 2k and k operations, over k: joining is in both; the barrier " +
		"before an operation, and signs of life, are not taken off.")
	l.remark("The figure counts bytes that switch ports receive and send. Bytes sent alone are nearly the same for all: " +
		"a switch copies a packet where a ring sends it again.")
	return nil
}

func (l *lab) trafficOf(tb *testbed.Testbed, peer, collective string, n int) (trafficRow, error) {
	k := max(1, 64/tb.Spec().Hosts)
	if collective == "broadcast" {
		k = 20 // it moves little, and what joining takes differs a little from run to run
	}
	w := work{
		peer: peer, collective: collective, bytes: []int{n}, iters: 1, warmup: k, env: crowded, mayFail: peer == gloo,
	}
	row := trafficRow{Setting: l.setting(0), Peer: peer, Command: l.command(w), Env: w.env, Collective: collective,
		Bytes: n, Iterations: k,
		Expected: expected(tb.Spec(), peer, collective, n)}
	c, err := l.count(tb, w, k)
	switch {
	case err != nil && (!w.mayFail || l.ctx.Err() != nil):
		return row, err
	case err != nil:
		row.Ended = l.why(err)
	default:
		row.Received, row.Sent, row.Ports = c.received, c.sent, c.received+c.sent
	}
	return row, nil
}

func megabytes(r trafficRow) string {
	if r.Ended != "" {
		return r.Ended
	}
	return fmt.Sprintf("%.1f", r.Ports/1e6)
}

// portRatio is how many times as many bytes a peer's operation takes as ours on as many hosts; 0
// where one was not counted.
func portRatio(rows []trafficRow, r trafficRow) float64 {
	for _, o := range rows {
		if o.Peer == ours && o.Collective == r.Collective && o.Hosts == r.Hosts && o.Ports > 0 {
			return r.Ports / o.Ports
		}
	}
	return 0
}

func toOurs(rows []trafficRow, r trafficRow) string {
	if ratio := portRatio(rows, r); ratio > 0 {
		return fmt.Sprintf("%.2fx", ratio)
	}
	return ""
}

func (l *lab) trafficGoals(collective string, hosts int, rows []trafficRow) {
	want := map[string]float64{"allgather": 1.9, "broadcast": 1.5}[collective]
	for _, r := range rows {
		if r.Collective == collective && r.Hosts == hosts && r.Peer != ours {
			ratio := portRatio(rows, r)
			l.goal(fmt.Sprintf("port bytes of %s on %d hosts, by %s (%s) to ours", collective, hosts, r.Peer,
				algorithmOf(r.Peer, collective)),
				fmt.Sprintf("at least %gx", want), fmt.Sprintf("%.2fx", ratio), ratio >= want)
		}
	}
}

func trafficChart(collective string, n int, hosts []int, rows []trafficRow) *chart.Chart {
	c := chart.New(fmt.Sprintf("%s of %s: bytes at all switch ports, received and sent",
		strings.ToUpper(collective[:1])+collective[1:], chart.Size(float64(n))), "hosts", "MB an operation")
	c.LogX(chart.Plain, floats(hosts)...)
	most := 0.0
	for _, p := range Peers {
		var counted, counts []chart.Point
		for _, r := range rows {
			if r.Collective != collective || r.Peer != p {
				continue
			}
			x := float64(r.Hosts)
			if r.Ports > 0 {
				counted = append(counted, chart.Point{X: x, Y: r.Ports / 1e6})
			}
			counts = append(counts, chart.Point{X: x, Y: r.Expected / 1e6})
			most = max(most, r.Ports/1e6, r.Expected/1e6)
		}
		if len(counted) > 0 {
			c.Line(peerName(p)+", "+algorithmOf(p, collective), counted)
			c.Claim("bytes of shards, "+algorithmOf(p, collective), counts...)
		}
	}
	c.Y.Min, c.Y.Max = 0, 1.3*most
	c.X.Min, c.X.Max = float64(slices.Min(hosts))/1.1, float64(slices.Max(hosts))*1.1
	return c
}
