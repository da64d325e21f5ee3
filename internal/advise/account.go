package advise

import (
	"slices"
	"time"
)

// class is what collectives have in common that a training waits for alike.
type class int

const (
	gathers class = iota // Allgathers
	reduces              // Reduce-Scatters and Allreduces
	rest
	classes
)

func (k Kind) class() class {
	switch k {
	case Allgather:
		return gathers
	case ReduceScatter, Allreduce:
		return reduces
	}
	return rest
}

// sort is what makes collectives a row of the report.
type sort struct {
	kind  Kind
	size  int
	dtype string
}

func (c *Collective) sort() sort { return sort{c.Kind, c.Size, c.Type} }

// Account is where the time of a rank's step went, on average over its steps.
type Account struct {
	Rank     int           `json:"rank"`
	Path     string        `json:"trace"`
	Steps    int           `json:"steps"`
	Step     time.Duration `json:"step_ns"`
	Computed time.Duration `json:"computed_ns"`
	InFlight time.Duration `json:"in_flight_ns"` // with a collective under way, from its call on
	Exposed  time.Duration `json:"exposed_ns"`   // of that, with nothing computed
	// Waited is of that what lies before the end of a collective that ends while nothing is computed: the training has
	// waited for it, or for the others that its end let go on. The rest may be Python's.
	Waited  time.Duration `json:"waited_ns"`
	Gathers time.Duration `json:"gathers_in_flight_ns"`
	Reduces time.Duration `json:"reduces_in_flight_ns"` // Reduce-Scatters and Allreduces
	Both    time.Duration `json:"both_in_flight_ns"`

	exposed, waited [classes]time.Duration // shares of Exposed and Waited
	ofSort          map[sort]time.Duration // exposed with one of a sort in flight; sorts may be so at once
}

// mostSorts bounds the work on a trace in which every collective differs.
const mostSorts = 64

// window is all steps of a trace.
func (t *Trace) window() []span { return union(slices.Clone(t.steps)) }

// inFlight returns when the collectives were under way for which a function is true.
func (t *Trace) inFlight(window []span, of func(c *Collective) bool) (all []span) {
	for i := range t.Collectives {
		if c := &t.Collectives[i]; of(c) {
			all = append(all, span{c.Posted, c.during.to})
		}
	}
	return intersection(union(all), window)
}

// waits returns the stretches of idle time that end with a collective, the last one of each.
func waits(idle []span, ends []int64) (all []span) {
	slices.Sort(ends)
	i := 0
	for _, gap := range idle {
		for i < len(ends) && ends[i] <= gap.from {
			i++
		}
		last := gap.from
		for ; i < len(ends) && ends[i] <= gap.to; i++ {
			last = ends[i]
		}
		if last > gap.from {
			all = append(all, span{gap.from, last})
		}
	}
	return all
}

// account sums up the steps of a trace.
func (t *Trace) account() Account {
	window := t.window()
	compute := intersection(t.compute, window)
	flights := t.inFlight(window, func(*Collective) bool { return true })
	exposed := without(flights, compute)
	ends := make([]int64, len(t.Collectives))
	for i, c := range t.Collectives {
		ends[i] = c.during.to
	}
	waited := intersection(exposed, waits(without(window, compute), ends))

	steps := int64(len(t.steps))
	each := func(all []span) time.Duration { return time.Duration(length(all) / steps) }
	a := Account{
		Rank: t.Rank, Path: t.Path, Steps: len(t.steps), Step: each(window), Computed: each(compute), InFlight: each(flights),
		Exposed: each(exposed), Waited: each(waited), ofSort: map[sort]time.Duration{},
	}
	var of [classes][]span
	for c := range classes {
		of[c] = t.inFlight(window, func(x *Collective) bool { return x.Kind.class() == c })
		a.exposed[c] = each(intersection(exposed, of[c]))
		a.waited[c] = each(intersection(waited, of[c]))
	}
	share(&a.exposed, a.Exposed)
	share(&a.waited, a.Waited)
	a.Gathers, a.Reduces, a.Both = each(of[gathers]), each(of[reduces]), each(intersection(of[gathers], of[reduces]))
	for i := range t.Collectives {
		s := t.Collectives[i].sort()
		if _, known := a.ofSort[s]; !known && len(a.ofSort) < mostSorts {
			a.ofSort[s] = each(intersection(exposed, t.inFlight(window, func(x *Collective) bool { return x.sort() == s })))
		}
	}
	return a
}

// share cuts classes down to a sum, in proportion: where several are under way at once each has been counted.
func share(of *[classes]time.Duration, sum time.Duration) {
	all := time.Duration(0)
	for _, d := range of {
		all += d
	}
	for c := range of {
		if all > 0 {
			of[c] = time.Duration(float64(of[c]) * float64(sum) / float64(all))
		}
	}
}
