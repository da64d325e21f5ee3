package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/crossing"
)

// Options are what a trace does not say.
type Options struct {
	Link    float64 // of a host in each direction, bits a second; 0: the best that the trace has
	PerHost int     // ranks; 0: what the traces say, or one
}

// Report has the figures and findings of a job's traces.
type Report struct {
	Backend     string  `json:"backend"`
	World       int     `json:"world"` // ranks of the job; 0: not known
	PerHost     int     `json:"ranks_per_host"`
	PerHostFrom string  `json:"ranks_per_host_from"` // where that is known from
	Link        float64 `json:"link_bits"`           // a second; 0: not known
	LinkFrom    string  `json:"link_from"`
	// Best is what large collectives have reached on a host's link, in bits a second; 0: not known.
	Best  float64       `json:"best_bits"`
	Step  time.Duration `json:"step_ns"`
	Late  time.Duration `json:"late_ns"`        // of the collectives of a step: waiting for ranks that came later
	Known bool          `json:"late_is_known"`  // from two traces on
	OnGPU bool          `json:"compute_on_gpu"` // otherwise on CPUs
	// Marked says whether the profiler knows of steps; otherwise the whole trace counts as one.
	Marked      bool         `json:"steps_marked"`
	Ranks       []Account    `json:"ranks"`
	Rows        []Row        `json:"collectives"`
	Predictions []Prediction `json:"predictions"`
	// Endless is the part of the collectives without an end in the traces. Above a tenth, the exposed time and late ranks
	// are not known.
	Endless     float64   `json:"without_end"`
	Unpredicted string    `json:"not_predicted,omitempty"` // why there are none
	Findings    []Finding `json:"findings"`
}

// Row is what a step has of collectives of one kind, group and type, on average over ranks.
type Row struct {
	Kind    Kind          `json:"kind"`
	Size    int           `json:"group_size"` // ranks; 0: not known
	Type    string        `json:"dtype"`
	Count   float64       `json:"count"` // a step
	Bytes   float64       `json:"bytes"` // a step, of whole messages; 0: not known
	Time    time.Duration `json:"time_ns"`
	Late    time.Duration `json:"late_ns"` // of that
	Exposed time.Duration `json:"exposed_ns"`
	Bus     float64       `json:"bus_bits"` // a second, as nccl-tests count, while bytes were on their way
}

// Of returns the report of traces of one job.
func Of(traces []*Trace, o Options) (*Report, error) {
	if err := alike(traces); err != nil {
		return nil, err
	}
	first := traces[0]
	r := &Report{
		Backend: first.Backend, World: first.World, OnGPU: first.OnGPU, Marked: first.marked, Predictions: []Prediction{},
		Findings: []Finding{},
	}
	if r.World > 0 { // World may be the size of the largest group only
		r.World = max(r.World, len(traces))
	}
	if err := r.places(traces, o.PerHost); err != nil {
		return nil, err
	}
	all := transfers(traces)
	for i, t := range traces {
		a := t.account()
		r.Ranks = append(r.Ranks, a)
		r.Step += a.Step / time.Duration(len(traces))
		for _, x := range all[i] {
			r.Known = r.Known || x.compared
			r.Late += time.Duration(x.late() / int64(a.Steps*len(traces)))
		}
	}
	endless, collectives := 0, 0
	for _, t := range traces {
		endless, collectives = endless+t.Endless, collectives+len(t.Collectives)
	}
	r.Endless = float64(endless) / float64(collectives)
	slices.SortStableFunc(r.Ranks, func(a, b Account) int { return cmp.Compare(a.Rank, b.Rank) })
	r.Rows = rows(traces, all)
	for i := range r.Rows {
		for j := range r.Ranks {
			row := &r.Rows[i]
			row.Exposed += r.Ranks[j].ofSort[sort{row.Kind, row.Size, row.Type}] / time.Duration(len(r.Ranks))
		}
	}
	r.predict(traces, all, o.Link)
	r.Findings = append(r.Findings, r.advice(all)...)
	return r, nil
}

// alike says what makes traces not those of one job.
func alike(traces []*Trace) error {
	if len(traces) == 0 {
		return fmt.Errorf("no trace: want one or more of a job")
	}
	seen := map[int]*Trace{}
	for _, t := range traces {
		if other := traces[0]; t.World != other.World || t.Backend != other.Backend {
			return fmt.Errorf("%s is of %d ranks over %s, %s of %d over %s: want traces of one job", other.Path, other.World,
				other.Backend, t.Path, t.World, t.Backend)
		} else if t.OnGPU != other.OnGPU {
			return fmt.Errorf("%s computes on %s, %s on %s: want traces of one job, all with ProfilerActivity.CUDA or none",
				other.Path, other.device(), t.Path, t.device())
		}
		if other := seen[t.Rank]; other != nil && t.Rank >= 0 {
			return fmt.Errorf("%s and %s are both of rank %d: want one trace a rank", other.Path, t.Path, t.Rank)
		}
		seen[t.Rank] = t
	}
	return nil
}

// device is on what a rank computes.
func (t *Trace) device() string {
	if t.OnGPU {
		return "GPUs"
	}
	return "CPUs"
}

// places finds out how many ranks a host has.
func (r *Report) places(traces []*Trace, given int) error {
	on := map[string]int{}
	for _, t := range traces {
		on[t.Host]++
	}
	switch {
	case given < 0:
		return fmt.Errorf("--ranks-per-host=%d is not allowed: want 1 or more", given)
	case given > 0 && r.World%given != 0:
		return fmt.Errorf("--ranks-per-host=%d is not allowed: want a divisor of the job's %d ranks", given, r.World)
	case given > 0:
		r.PerHost, r.PerHostFrom = given, "as told"
	case len(traces) == r.World && r.World > 1 && on[""] == 0 && r.World%len(on) == 0:
		r.PerHost, r.PerHostFrom = r.World/len(on), "by the host names of the traces"
	case r.OnGPU && min(traces[0].Devices, r.World) > 0 && r.World%min(traces[0].Devices, r.World) == 0:
		r.PerHost, r.PerHostFrom = min(traces[0].Devices, r.World), "as many as GPUs were seen"
	default:
		r.PerHost, r.PerHostFrom = 1, "assumed"
	}
	return nil
}

// rows sums up the collectives of a step.
func rows(traces []*Trace, all [][]transfer) []Row {
	sums := map[sort]*Row{}
	bus, wire := map[sort]float64{}, map[sort]float64{}
	for i, t := range traces {
		each := 1 / float64(len(t.steps)*len(traces))
		for _, x := range all[i] {
			k := x.sort()
			if sums[k] == nil {
				sums[k] = &Row{Kind: x.Kind, Size: x.Size, Type: x.Type}
			}
			row := sums[k]
			row.Count += each
			row.Bytes += float64(x.Bytes) * each
			row.Time += time.Duration(float64(x.took) * each)
			row.Late += time.Duration(float64(x.late()) * each)
			bus[k] += x.bus()
			wire[k] += float64(x.wire) / 1e9
		}
	}
	var found []Row
	for k, row := range sums {
		if wire[k] > 0 {
			row.Bus = 8 * bus[k] / wire[k]
		}
		found = append(found, *row)
	}
	slices.SortFunc(found, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Size, b.Size),
			cmp.Compare(a.Type, b.Type))
	})
	return found
}

// predict has the report say what a step would take over torch-mcast.
func (r *Report) predict(traces []*Trace, all [][]transfer, link float64) {
	way := theirs(r.Backend)
	r.Best = 8 * best(all, way, r.PerHost)
	switch {
	case link > 0:
		r.Link, r.LinkFrom = link, "as told"
	case r.Best > 0:
		r.Link, r.LinkFrom = r.Best, "what large collectives have reached in the trace"
	}
	unknown, counted := 0, 0
	for _, of := range all {
		for _, x := range of {
			if x.Kind.class() != rest {
				counted++
				if x.Bytes == 0 {
					unknown++
				}
			}
		}
	}
	switch {
	case r.endless():
		r.Unpredicted = fmt.Sprintf("%s of the collectives have no end in the trace", percent(r.Endless))
	case counted == 0:
		r.Unpredicted = "there is no Allgather, Reduce-Scatter or Allreduce in these steps"
	case unknown > counted/10:
		r.Unpredicted = "sizes are not known: profile with record_shapes=True"
	case r.World == 0:
		r.Unpredicted = "the number of ranks is not in the trace"
	case r.World <= r.PerHost:
		r.Unpredicted = "all ranks are on one host, where nothing crosses a link: over torch-mcast they share memory, and " +
			"there is no law for what that gains"
	case r.Link == 0:
		r.Unpredicted = "no collective of the trace crosses a link"
	default:
		accounts := make([]Account, len(traces))
		for i, t := range traces {
			accounts[i] = t.account()
		}
		for _, to := range []crossing.Way{crossing.Nodes, crossing.NodesSwitch} {
			r.Predictions = append(r.Predictions, predict(accounts, all, way, to, r.PerHost, r.Link/8))
		}
	}
}

// endless reports whether it is not known what was under way when.
func (r *Report) endless() bool { return r.Endless > 0.1 }

// mean is the mean over all ranks.
func (r *Report) mean(of func(a *Account) time.Duration) (sum time.Duration) {
	for i := range r.Ranks {
		sum += of(&r.Ranks[i])
	}
	return sum / time.Duration(max(len(r.Ranks), 1))
}

// Lines are it for people.
func (r *Report) Lines() []string {
	lines := r.head()
	lines = append(lines, fmt.Sprintf("%-15s %6s %-9s %7s %9s %9s %7s %9s %11s", "collective", "group", "type", "a step",
		"MB", "ms", "late", "exposed", "bus, Gbit/s"))
	for i := range r.Rows {
		lines = append(lines, r.Rows[i].line(r.Known, !r.endless()))
	}
	if !r.endless() {
		lines = append(append(lines, ""), r.time()...)
	}
	lines = append(lines, "")
	lines = append(lines, r.predicted()...)
	for i := range r.Findings {
		lines = append(lines, r.Findings[i].lines()...)
	}
	return lines
}

func (r *Report) head() []string {
	steps := fmt.Sprintf("%d steps of %s", r.Ranks[0].Steps, ms(r.Step))
	if !r.Marked {
		steps = "no steps marked (profiler.step()), so that all of " + ms(r.Step) + " count as one"
	}
	world := fmt.Sprint(r.World)
	if r.World == 0 {
		world = "an unknown number of"
	}
	lines := []string{
		fmt.Sprintf("%d of %s ranks over %s, %d a host (%s), %s", len(r.Ranks), world, r.Backend, r.PerHost, r.PerHostFrom,
			steps),
		"MB counts whole messages, all shards together; ms adds up the time that the backend takes for each. Exposed is " +
			"the time",
		"of a step in which a message is under way, from its call on, and nothing is computed: more than ms where calls " +
			"wait for the backend's threads.",
	}
	if r.Known {
		return append(lines, "Late is how much of ms a rank waits for others that come later.")
	}
	return append(lines, "One rank's trace does not tell waiting for late ranks from the network: give the traces of all.")
}

func (row *Row) line(known, ended bool) string {
	size, mb, bus, late, took, exposed := "-", "-", "-", "-", "-", "-"
	if row.Size > 0 {
		size = fmt.Sprint(row.Size)
	}
	if row.Bytes > 0 {
		mb = fmt.Sprintf("%.3f", row.Bytes/1e6)
	}
	if row.Bytes > 0 && ended {
		bus = fmt.Sprintf("%.3g", row.Bus/1e9)
	}
	if ended {
		took, exposed = fmt.Sprintf("%.1f", row.Time.Seconds()*1e3), fmt.Sprintf("%.1f", row.Exposed.Seconds()*1e3)
	}
	if known && ended {
		late = percent(float64(row.Late) / float64(max(row.Time, 1)))
	}
	return fmt.Sprintf("%-15s %6s %-9s %7s %9s %9s %7s %9s %11s", row.Kind, size, cmp.Or(row.Type, "-"),
		strings.TrimSuffix(fmt.Sprintf("%.1f", row.Count), ".0"), mb, took, late, exposed, bus)
}

// time says where the time of a step went.
func (r *Report) time() []string {
	flight := r.mean(func(a *Account) time.Duration { return a.InFlight })
	exposed := r.mean(func(a *Account) time.Duration { return a.Exposed })
	both := r.mean(func(a *Account) time.Duration { return a.Both })
	least, most := r.Ranks[0].Exposed, r.Ranks[0].Exposed
	for i := range r.Ranks {
		least, most = min(least, r.Ranks[i].Exposed), max(most, r.Ranks[i].Exposed)
	}
	spread := ""
	if len(r.Ranks) > 1 {
		spread = fmt.Sprintf(" (by rank %s to %s)", ms(least), ms(most))
	}
	lines := []string{fmt.Sprintf("Of a step of %s a collective is under way for %s: hidden behind compute %s, exposed "+
		"%s, %s of the step%s.",
		ms(r.Step), ms(flight), ms(flight-exposed), ms(exposed), percent(float64(exposed)/float64(max(r.Step, 1))), spread)}
	gather := r.mean(func(a *Account) time.Duration { return a.Gathers })
	reduce := r.mean(func(a *Account) time.Duration { return a.Reduces })
	if gather > 0 && reduce > 0 {
		lines = append(lines, fmt.Sprintf("Allgathers are under way for %s, reductions for %s, both at once for %s.",
			ms(gather), ms(reduce), ms(both)))
	}
	return lines
}

func (r *Report) predicted() []string {
	if r.Unpredicted != "" {
		return []string{"No step over torch-mcast is predicted: " + r.Unpredicted + "."}
	}
	lines := []string{
		fmt.Sprintf("A step over torch-mcast, if a host's link carries %s in each direction (%s):", rate(r.Link), r.LinkFrom),
		fmt.Sprintf("%-20s %18s %18s %14s", "", "step, ms", "times as fast", "link busy, ms"),
	}
	for _, p := range r.Predictions {
		name := "without a switch"
		if p.Switch {
			name = "a switch that adds"
		}
		lines = append(lines, fmt.Sprintf("%-20s %18s %18s %14.1f", name,
			fmt.Sprintf("%.1f to %.1f", p.Least.Seconds()*1e3, p.Most.Seconds()*1e3),
			fmt.Sprintf("%.2f to %.2f", p.GainLeast, p.GainMost), p.Link.Seconds()*1e3))
	}
	if direct, summed := r.Predictions[0], r.Predictions[1]; summed.Least >= direct.Least && summed.Most >= direct.Most {
		lines = append(lines, "A switch that adds gains nothing more here.")
	}
	return append(lines, "The longer step only changes the backend, with links no fuller than they were; the shorter "+
		"one hides what can be hidden",
		"(torch_mcast.fsdp.enable) and fills them. Compute takes as long as before; shared cores, memory and latency are "+
			"not counted.")
}

func (f *Finding) lines() []string {
	lines := []string{"", f.Cause, "  " + f.What}
	for _, figure := range f.Figures {
		lines = append(lines, "  - "+figure)
	}
	return append(lines, "  Helps: "+f.Remedy)
}

// ms is a duration.
func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }

// percent is a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// rate is bits a second.
func rate(bits float64) string {
	for _, unit := range []struct {
		name string
		of   float64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}} {
		if bits >= unit.of {
			return fmt.Sprintf("%.3g %s", bits/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%.3g kbit/s", bits/1e3)
}
