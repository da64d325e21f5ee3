package switchd

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// tally is what a worker counts.
type tally struct {
	innetwork.StageStats
	SlotsInUse uint64
	BytesIn    uint64 // of datagrams, headers included
	BytesOut   uint64
	Garbage    uint64 // datagrams that are none of ours
	BadTags    uint64
	Errors     uint64 // of the kernel, about datagrams that were sent
}

func (t *tally) add(o *tally) {
	t.Add(o.StageStats)
	t.SlotsInUse += o.SlotsInUse
	t.BytesIn += o.BytesIn
	t.BytesOut += o.BytesOut
	t.Garbage += o.Garbage
	t.BadTags += o.BadTags
	t.Errors += o.Errors
}

// Stats are the counters of a switch. Those of stages are up to 50 ms old.
type Stats struct {
	tally
	Jobs   int
	Memory int64 // of slots, in bytes
}

// Stats returns the sum of what all workers counted.
func (s *Server) Stats() Stats {
	var all Stats
	for _, w := range s.workers {
		all.add(w.counted.Load())
	}
	s.mu.Lock()
	all.Jobs = len(s.jobs)
	s.mu.Unlock()
	all.Memory = s.memory.used()
	return all
}

// reason says why somebody was refused.
type reason int

const (
	unproven   reason = iota // no greeting, or a wrong secret
	draining                 // the switch is about to end
	stale                    // the epoch is over
	mismatched               // the ranks' requests for a job differ
	incomplete               // not all ranks came in time
	tooMany                  // jobs or members
	noMemory                 // of slots
	noSocket                 // no port, no descriptor
	reasons
)

var reasonNames = [reasons]string{"handshake", "draining", "stale epoch", "mismatch", "incomplete", "too many",
	"memory", "socket"}

// counters are what sessions count.
type counters struct {
	refused [reasons]atomic.Uint64
}

func (c *counters) refuse(r reason) { c.refused[r].Add(1) }

// oldPage is when who asks for metrics is given new ones: soon, as mcast top shows rates between two answers.
const oldPage = 100 * time.Millisecond

// Handler serves /metrics for Prometheus and /healthz, which says 503 while the switch drains.
func (s *Server) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{s})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", httpd.Page(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), oldPage))
	mux.HandleFunc("GET "+httpd.HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		if s.Draining() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client is gone
	})
	return mux
}

// collector hands the counters to Prometheus.
type collector struct{ server *Server }

// metric is a row of the table that is shown for each worker.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*tally) uint64
}

func perWorker(name, help string, kind prometheus.ValueType, value func(*tally) uint64) metric {
	return metric{prometheus.NewDesc("mcast_switch_"+name, help, []string{"worker"}, nil), kind, value}
}

var metrics = []metric{
	perWorker("received_bytes_total", "Bytes of datagrams received, headers included.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.BytesIn }),
	perWorker("sent_bytes_total", "Bytes of datagrams sent, headers included.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.BytesOut }),
	perWorker("summed_bytes_total", "Bytes of elements of contributions taken.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.SummedBytes }),
	perWorker("contributions_total", "Contributions taken, kept ones included.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Contributions }),
	perWorker("slots_total", "Slots reduced.", prometheus.CounterValue, func(t *tally) uint64 { return t.Slots }),
	perWorker("results_total", "Results sent, again included.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Results }),
	perWorker("results_again_total", "Results sent more than once.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Again }),
	perWorker("duplicates_total", "Contributions that were there already.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Duplicates }),
	perWorker("stale_total", "Contributions to slots that are not held.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Stale }),
	perWorker("malformed_total", "Datagrams that no member can mean.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Malformed + t.Garbage }),
	perWorker("bad_tags_total", "Datagrams with a wrong tag.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.BadTags }),
	perWorker("gaps_total", "Losses of contributions that were noticed and reported.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Gaps }),
	perWorker("polls_total", "Polls of members that were answered.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Polls }),
	perWorker("errors_total", "Errors that the kernel reported about datagrams.", prometheus.CounterValue,
		func(t *tally) uint64 { return t.Errors }),
	perWorker("slots_in_use", "Slots that hold something.", prometheus.GaugeValue,
		func(t *tally) uint64 { return t.SlotsInUse }),
}

var (
	jobsDesc    = prometheus.NewDesc("mcast_switch_jobs", "Jobs that are here.", nil, nil)
	membersDesc = prometheus.NewDesc("mcast_switch_members", "Sessions of members of jobs.", nil, nil)
	memoryDesc  = prometheus.NewDesc("mcast_switch_memory_bytes", "Slot memory of all jobs.", nil, nil)
	refusedDesc = prometheus.NewDesc("mcast_switch_refused_total",
		"Members that were not admitted, and jobs that did not start.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- m.desc
	}
	for _, d := range []*prometheus.Desc{jobsDesc, membersDesc, memoryDesc, refusedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.server
	for i, w := range s.workers {
		t := w.counted.Load()
		for _, m := range metrics {
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(t)), strconv.Itoa(i))
		}
	}
	s.mu.Lock()
	jobs, members := len(s.jobs), 0
	for _, j := range s.jobs {
		members += j.sessions
	}
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(jobsDesc, float64(jobs))
	gauge(membersDesc, float64(members))
	gauge(memoryDesc, float64(s.memory.used()))
	for r, name := range reasonNames {
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(s.counters.refused[r].Load()), name)
	}
}
