package watch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const mostMetrics = 4 << 20 // bytes of a switch's metrics; it has some kilobytes a worker

var switchWithin = 2 * time.Second // what a switch may take

// Switch is what the metrics of a switch say at a moment.
type Switch struct {
	At      string // HOST:PORT of its --http
	Err     error  // why it says nothing
	when    time.Time
	total   map[string]float64   // of metrics that no worker has
	workers []map[string]float64 // those of each worker
}

// Switches asks switches for their metrics, where their --http listens.
func (r *Remote) Switches(addresses []string) []Switch {
	all := make([]Switch, len(addresses))
	done := make(chan struct{})
	for i, at := range addresses {
		go func() {
			all[i] = r.lookAtSwitch(at)
			done <- struct{}{}
		}()
	}
	for range addresses {
		<-done
	}
	return all
}

func (r *Remote) lookAtSwitch(at string) Switch {
	s := Switch{At: at, when: time.Now(), total: map[string]float64{}}
	ctx, cancel := context.WithTimeout(context.Background(), switchWithin)
	defer cancel()
	answer, err := r.get(ctx, at, "/metrics")
	if err != nil {
		s.Err = err
		return s
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		s.Err = fmt.Errorf("%s://%s/metrics: %s", r.scheme, at, answer.Status)
		return s
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(answer.Body, mostMetrics))
	if err != nil {
		s.Err = fmt.Errorf("%s://%s/metrics: %w", r.scheme, at, err)
		return s
	}
	if families["mcast_switch_jobs"] == nil {
		s.Err = fmt.Errorf("%s://%s/metrics is no page of mcast switch", r.scheme, at)
		return s
	}
	for name, f := range families {
		if of, ours := strings.CutPrefix(name, "mcast_switch_"); ours {
			s.take(of, f)
		}
	}
	return s
}

// mostWorkers bounds the rows of a switch: what answers may be anything.
const mostWorkers = 1024

func (s *Switch) take(name string, f *dto.MetricFamily) {
	for _, m := range f.GetMetric() {
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue() // one of them is there
		i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "worker" })
		if i < 0 {
			s.total[name] += value // of all reasons
			continue
		}
		worker, err := strconv.Atoi(m.GetLabel()[i].GetValue())
		if err != nil || worker < 0 || worker >= mostWorkers {
			continue
		}
		for len(s.workers) <= worker {
			s.workers = append(s.workers, map[string]float64{})
		}
		s.workers[worker][name] = value
	}
}

// SwitchTable shows what switches did between two looks to people, in lines.
func SwitchTable(before, now []Switch) (lines []string) {
	for i := range now {
		s := &now[i]
		if s.Err != nil {
			lines = append(lines, "", fmt.Sprintf("switch %s does not answer: %v", s.At, s.Err))
			continue
		}
		lines = append(lines, "",
			fmt.Sprintf("switch %s: %.0f job(s) of %.0f member(s), %.1f MiB of slots, %.0f refused",
				s.At, s.total["jobs"], s.total["members"], s.total["memory_bytes"]/(1<<20), s.total["refused_total"]),
			fmt.Sprintf("%6s | %8s %8s %8s | %9s %8s | %9s %9s %9s %9s",
				"worker", "in GB/s", "out GB/s", "sum GB/s", "slots/s", "in use", "again/s", "gaps/s", "dups/s", "bad tags"))
		for w := range s.workers {
			lines = append(lines, s.row(w, &before[i]))
		}
	}
	return lines
}

// row is what a worker did since the look before. If the switch has started anew since then, its counters count from 0.
func (s *Switch) row(worker int, before *Switch) string {
	is := s.workers[worker]
	seconds := s.when.Sub(before.when).Seconds()
	rate := func(name string) float64 {
		if worker >= len(before.workers) || seconds <= 0 {
			return 0
		}
		was := before.workers[worker][name]
		if is[name] < was {
			was = 0
		}
		return (is[name] - was) / seconds
	}
	return fmt.Sprintf("%6d | %8.3f %8.3f %8.3f | %9.0f %8.0f | %9.0f %9.0f %9.0f %9.0f",
		worker, rate("received_bytes_total")/1e9, rate("sent_bytes_total")/1e9, rate("summed_bytes_total")/1e9,
		rate("slots_total"),
		is["slots_in_use"], rate("results_again_total"), rate("gaps_total"), rate("duplicates_total"), is["bad_tags_total"])
}
