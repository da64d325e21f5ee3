package watch

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/api"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// rank returns one of four ranks at a second, that has done as much each second.
func rank(number, second int) Rank {
	n := uint64(second)
	counts := make([]uint64, 25)
	counts[7] = 200 * n // up to 1.05 ms
	return Rank{
		Version: "0.1.0", Commit: "0123456789ab", PID: 100 + number, Run: "llama", At: time.Duration(second) * time.Second,
		Live: monitor.Live{
			Group: "abc", Info: monitor.Info{Rank: number, Size: 4, Fabric: "udp", Interface: "eth0", Allgather: "multicast", ReduceScatter: "switch", ReduceScatterReason: "the switch at 10.0.0.9:7470"},
			Counters: map[string]uint64{
				"gather_ops": 200 * n, "gather_sent_bytes": n * 1e9, "gather_received_bytes": n * 2e9, "gather_busy_ns": n * 9e8,
				"reduce_ops": 50 * n, "chunks_repaired": 3 * n, "reduce_resent": n, "warnings": 1,
			},
			GatherInFlight: 1, Times: []hierarchy.Times{{Kind: "allgather", Size: "1MiB", Sum: time.Duration(200*n) * time.Millisecond, Counts: counts}},
		},
	}
}

func TestBetween(t *testing.T) {
	waits := rank(1, 12)
	waits.Waiting = []monitor.Waiting{{Operation: "allgather of 8 bytes, number 7", Ranks: []int{0}, Why: "it has not begun there", For: 12 * time.Second}}
	too := rank(2, 12)
	too.Waiting = []monitor.Waiting{{Operation: "allgather of 8 bytes, number 7", Ranks: []int{0}, Why: "a chunk has not come", For: 11 * time.Second}}
	all := Between([]Rank{rank(0, 10)}, []Rank{rank(0, 12), waits, too})
	require.Equal(t, Activity{
		Group: "abc", Rank: 0, Size: 4, PID: 100, Run: "llama", Fabric: "udp", Interface: "eth0", Allgather: "multicast", ReduceScatter: "switch",
		ReduceScatterReason: "the switch at 10.0.0.9:7470", Gather: Lane{Ops: 200, MeanUS: 1000, OutGB: 1, InGB: 2, InFlight: 1},
		Reduce: Lane{Ops: 50}, Repairs: 4, Warnings: 1, Waiting: []monitor.Waiting{},
	}, all[0])
	require.Equal(t, Lane{InFlight: 1}, all[1].Gather, "it is new: nothing is known of what it does")
	require.Equal(t, []string{
		"group abc: 3 of 4 ranks are here, fabric udp on eth0, run llama",
		"Allgather by multicast; Reduce-Scatter: switch (the switch at 10.0.0.9:7470)",
		" rank      pid | gather/s   mean us out GB/s  in GB/s flying | reduce/s   mean us out GB/s  in GB/s flying | " +
			"repairs/s fallbacks",
		"    0      100 |      200      1000    1.000    2.000      1 |       50         0    0.000    0.000      0 |      " +
			"   4         0",
		"    1      101 |        0         0    0.000    0.000      1 |        0         0    0.000    0.000      0 |      " +
			"   0         0",
		"    2      102 |        0         0    0.000    0.000      1 |        0         0    0.000    0.000      0 |      " +
			"   0         0",
		"rank 0: 1 warning(s), in its log and in the notes of info()",
		"rank 1: 1 warning(s), in its log and in the notes of info()",
		"rank 2: 1 warning(s), in its log and in the notes of info()",
		"rank 0 is late, for 12s, in allgather of 8 bytes, number 7: rank(s) 1, 2 wait for it (it has not begun there)",
	}, Table(all))
}

// TestMetrics: the metrics for Prometheus are right in form and in content.
func TestMetrics(t *testing.T) {
	failed := rank(1, 2)
	failed.Failed = "rank 0 is lost"
	failed.Waiting = []monitor.Waiting{{Operation: "barrier, number 7", Ranks: []int{0}, For: 2500 * time.Millisecond}}
	families := gather(t, []Rank{rank(0, 1), failed}, errors.New("gone"))
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	var text strings.Builder
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			_, err := expfmt.MetricFamilyToText(&text, f)
			require.NoError(t, err)
		}
	}
	for _, want := range []string{`
mcast_awaited_seconds{awaited="0",group="abc",rank="1"} 2.5
`, `
mcast_failed{group="abc",rank="0"} 0
mcast_failed{group="abc",rank="1"} 1
`, `
# HELP mcast_gather_busy_seconds_total Time with an Allgather, Broadcast or Barrier in flight.
# TYPE mcast_gather_busy_seconds_total counter
mcast_gather_busy_seconds_total{group="abc",rank="0"} 0.9
mcast_gather_busy_seconds_total{group="abc",rank="1"} 1.8
`, `
mcast_group_info{allgather="multicast",commit="0123456789ab",fabric="udp",group="abc",interface="eth0",pid="100",rank="0",reduce_scatter="switch",run="llama",size="4",version="0.1.0"} 1
mcast_group_info{allgather="multicast",commit="0123456789ab",fabric="udp",group="abc",interface="eth0",pid="101",rank="1",reduce_scatter="switch",run="llama",size="4",version="0.1.0"} 1
`, `
mcast_in_flight{group="abc",lane="gather",rank="0"} 1
mcast_in_flight{group="abc",lane="gather",rank="1"} 1
mcast_in_flight{group="abc",lane="reduce",rank="0"} 0
mcast_in_flight{group="abc",lane="reduce",rank="1"} 0
`, `
mcast_unseen_processes 1
`, `
mcast_waiting_seconds{group="abc",rank="0"} 0
mcast_waiting_seconds{group="abc",rank="1"} 2.5
`} {
		require.Contains(t, text.String(), want)
	}
}

// TestAlertsAreAboutMetricsThatThereAre: a metric that is no more would never raise its alert.
func TestAlertsAreAboutMetricsThatThereAre(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "packaging", "mcast.rules.yml"))
	require.NoError(t, err)
	served := make(chan *prometheus.Desc, 100)
	(&Collector{}).Describe(served)
	close(served)
	var known []string
	for d := range served {
		known = append(known, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	metrics := regexp.MustCompile(`\bmcast_\w+`).FindAllString(string(rules), -1)
	require.Len(t, metrics, 3)
	require.Subset(t, known, metrics)
}

// gather has Prometheus ask for what ranks publish.
func gather(t *testing.T, ranks []Rank, errs ...error) []*dto.MetricFamily {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(&Collector{Look: func() ([]Rank, []error) { return ranks, errs }}))
	families, err := r.Gather()
	require.NoError(t, err)
	return families
}

// TestHistogram: Prometheus counts values up to a bound, our histogram the values in each bucket.
func TestHistogram(t *testing.T) {
	for _, f := range gather(t, []Rank{rank(0, 1)}) {
		if f.GetName() != "mcast_operation_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		require.EqualValues(t, 200, h.GetSampleCount())
		require.InDelta(t, 0.2, h.GetSampleSum(), 1e-9)
		for _, b := range h.GetBucket() {
			want := uint64(0)
			if b.GetUpperBound() > 0.001 {
				want = 200
			}
			require.Equal(t, want, b.GetCumulativeCount(), b.GetUpperBound())
		}
		require.InDelta(t, 1048576e-9, h.GetBucket()[7].GetUpperBound(), 1e-12)
		return
	}
	t.Fatal("no histogram")
}

// TestEveryCounter has a name of its own in Prometheus.
func TestEveryCounter(t *testing.T) {
	names := map[string]bool{}
	for _, c := range api.Counters() {
		names[metricName(c.Name)] = true
	}
	require.Len(t, names, len(api.Counters()))
}

// TestWhoSaysThatItIsAnother takes nobody's metrics away: a process of another user may publish anything.
func TestWhoSaysThatItIsAnother(t *testing.T) {
	another := rank(0, 2)
	another.PID, another.Times = 7, append(another.Times, another.Times...)
	for _, f := range gather(t, []Rank{rank(0, 1), another, rank(1, 1)}) {
		if f.GetName() == "mcast_group_info" {
			require.Len(t, f.GetMetric(), 2)
		}
	}
	require.NotEmpty(t, gather(t, []Rank{another}))
}

// TestTableOfManyGroups: trouble comes first, then work, and a group that does nothing has one line.
func TestTableOfManyGroups(t *testing.T) {
	idle := Activity{Group: "a", Size: 2, Fabric: "udp"}
	works := Activity{Group: "b", Size: 2, Fabric: "udp", Reduce: Lane{InFlight: 1}}
	failed := Activity{Group: "c", Size: 2, Fabric: "udp", Failed: "rank 1 is lost"}
	var first []string
	for _, line := range Table([]Activity{idle, works, failed}) {
		if strings.HasPrefix(line, "group") || strings.Contains(line, "failed") {
			first = append(first, line)
		}
	}
	require.Equal(t, []string{
		"group c: 1 of 2 ranks are here, fabric udp", "rank 0: failed: rank 1 is lost",
		"group b: 1 of 2 ranks are here, fabric udp", "group a: 1 of 2 ranks are here, fabric udp: idle",
	}, first)
	require.Len(t, Table([]Activity{idle}), 4, "the only group is shown whole")
}
