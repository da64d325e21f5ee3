package watch

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/torch-mcast/torch-mcast/internal/api"
	"github.com/torch-mcast/torch-mcast/internal/engine"
)

// Collector hands what the ranks of this host publish to Prometheus. It looks when it is asked.
type Collector struct {
	Look func() ([]Rank, []error)
}

var (
	ofRank   = []string{"group", "rank"}
	infoDesc = prometheus.NewDesc("mcast_group_info", "1 for each rank of this host; its labels describe the rank.",
		append(ofRank, "size", "run", "pid", "version", "commit", "fabric", "interface", "allgather", "reduce_scatter"), nil)
	flightDesc  = prometheus.NewDesc("mcast_in_flight", "Operations that are not done.", append(ofRank, "lane"), nil)
	waitingDesc = prometheus.NewDesc("mcast_waiting_seconds",
		"For how long an operation of this rank has not moved; 0: none stands still.", ofRank, nil)
	awaitedDesc = prometheus.NewDesc("mcast_awaited_seconds",
		"For how long this rank has waited for another one (of eight at most).", append(ofRank, "awaited"), nil)
	failedDesc = prometheus.NewDesc("mcast_failed", "1 once the group has failed: all its operations end with an error.",
		ofRank, nil)
	timesDesc = prometheus.NewDesc("mcast_operation_seconds",
		"How long operations took since they were posted, by kind and greatest shard. Steps of Allreduces count for their "+
			"own kinds, too.",
		append(ofRank, "kind", "size"), nil)
	unseenDesc = prometheus.NewDesc("mcast_unseen_processes", "Processes of this host that publish and have not answered.",
		nil, nil)
)

// counterDescs are those of the counters, by name.
var counterDescs = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, c := range api.Counters() {
		all[c.Name] = prometheus.NewDesc(metricName(c.Name), c.What, ofRank, nil)
	}
	return all
}()

// metricName is what Prometheus calls a counter: gather_busy_ns is mcast_gather_busy_seconds_total.
func metricName(counter string) string {
	if of, time := strings.CutSuffix(counter, "_ns"); time {
		counter = of + "_seconds"
	}
	return "mcast_" + counter + "_total"
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{infoDesc, flightDesc, waitingDesc, awaitedDesc, failedDesc, timesDesc,
		unseenDesc} {
		to <- d
	}
	for _, d := range counterDescs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	ranks, errs := c.Look()
	to <- prometheus.MustNewConstMetric(unseenDesc, prometheus.GaugeValue, float64(len(errs)))
	seen := map[[2]string]bool{}
	for i := range ranks {
		// A process may publish anything. If several claim to be the same rank, the first counts: to show
		// both is an error that would lose the metrics of all others.
		if r := &ranks[i]; first(seen, r.Group, strconv.Itoa(r.Info.Rank)) {
			r.collect(to)
		}
	}
}

// first reports whether there was no such pair yet.
func first(seen map[[2]string]bool, a, b string) bool {
	pair := [2]string{a, b}
	was := seen[pair]
	seen[pair] = true
	return !was
}

// mostAwaited bounds the ranks of mcast_awaited_seconds: where all others are awaited, no single one is at fault.
const mostAwaited = 8

func (r *Rank) collect(to chan<- prometheus.Metric) {
	rank := strconv.Itoa(r.Info.Rank)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{r.Group, rank}, labels...)...)
	}
	gauge(infoDesc, 1, strconv.Itoa(r.Info.Size), r.Run, strconv.Itoa(r.PID), r.Version, r.Commit, r.Info.Fabric,
		r.Info.Interface, r.Info.Allgather, r.Info.ReduceScatter)
	gauge(flightDesc, float64(r.GatherInFlight), "gather")
	gauge(flightDesc, float64(r.ReduceInFlight), "reduce")
	var longest time.Duration
	awaited := map[int]time.Duration{}
	for _, w := range r.Waiting {
		longest = max(longest, w.For)
		for _, other := range w.Ranks[:min(len(w.Ranks), mostAwaited)] {
			awaited[other] = max(awaited[other], w.For)
		}
	}
	gauge(waitingDesc, longest.Seconds())
	for other, d := range awaited {
		gauge(awaitedDesc, d.Seconds(), strconv.Itoa(other))
	}
	failed := 0.0
	if r.Failed != "" {
		failed = 1
	}
	gauge(failedDesc, failed)
	for _, c := range api.Counters() {
		value, ok := r.Counters[c.Name]
		if !ok {
			continue // its library is older
		}
		x := float64(value)
		if c.GoType() == "time.Duration" {
			x = time.Duration(value).Seconds()
		}
		to <- prometheus.MustNewConstMetric(counterDescs[c.Name], prometheus.CounterValue, x, r.Group, rank)
	}
	seen := map[[2]string]bool{}
	for _, t := range r.Times {
		if !first(seen, t.Kind, t.Size) {
			continue
		}
		count, upTo := uint64(0), map[float64]uint64{}
		for i, n := range t.Counts {
			count += n
			if i < len(t.Counts)-1 {
				upTo[engine.Bound(i).Seconds()] = count
			}
		}
		to <- prometheus.MustNewConstHistogram(timesDesc, count, t.Sum.Seconds(), upTo, r.Group, rank, t.Kind, t.Size)
	}
}
