package advise

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/crossing"
)

// Prediction is how long a step would take over torch-mcast: bounds.
type Prediction struct {
	Switch bool `json:"switch"` // with an aggregation node
	// Least is if the training hides what can be hidden, and links are always as full as the best.
	Least time.Duration `json:"step_least_ns"`
	// Most is if only the backend is changed, and links are as full as they were in the trace.
	Most time.Duration `json:"step_most_ns"`
	// GainLeast and GainMost are how many times as long the traced step takes.
	GainLeast float64       `json:"gain_least"`
	GainMost  float64       `json:"gain_most"`
	Link      time.Duration `json:"link_ns"` // that the step's bytes take on a host's link
}

// theirs is the way of a backend.
func theirs(backend string) crossing.Way {
	switch backend {
	case "gloo":
		return crossing.Gloo
	case "mcast":
		return crossing.Nodes
	}
	return crossing.Ring
}

// best returns the rate of links, in bytes a second, that large collectives have reached: the ninth decile, as a single
// one may have been measured wrong. 0: there was none.
func best(all [][]transfer, w crossing.Way, perHost int) float64 {
	type sample struct{ bytes, rate float64 }
	var samples []sample
	largest := 0.0
	for _, of := range all {
		for _, x := range of {
			if n := x.crosses(w, perHost).busiest(); n > 0 && x.wire > 0 {
				samples = append(samples, sample{n, n / (float64(x.wire) / 1e9)})
				largest = max(largest, n)
			}
		}
	}
	var rates []float64
	for _, s := range samples {
		if s.bytes >= largest/4 {
			rates = append(rates, s.rate)
		}
	}
	if len(rates) == 0 {
		return 0
	}
	slices.Sort(rates)
	return rates[(len(rates)*9-1)/10]
}

// predict returns the bounds for one of our ways, links having a rate of bytes a second.
func predict(
	accounts []Account, all [][]transfer, from crossing.Way, to crossing.Way, perHost int, rate float64,
) Prediction {
	n := time.Duration(len(accounts))
	p := Prediction{Switch: to == crossing.NodesSwitch}
	step := time.Duration(0)
	for i := range accounts {
		a := &accounts[i]
		step += a.Step / n
		p.Most += (a.Step - a.saved(all[i], from, to, perHost)) / n

		link, first, last := demand(all[i], to, perHost, a.Steps)
		p.Link = max(p.Link, seconds(link.busiest()/rate))
		// No rank computes less than now, and two transfers have no compute to hide behind: the first Allgather of a step,
		// and its last reduction.
		p.Least = max(p.Least, a.Step-a.exposed[gathers]-a.exposed[reduces]+seconds((first+last)/rate))
	}
	p.Most = min(p.Most, step)
	p.Least = min(max(p.Least, p.Link), p.Most)
	p.GainLeast, p.GainMost = float64(step)/float64(max(p.Most, 1)), float64(step)/float64(max(p.Least, 1))
	return p
}

// saved returns by how much less a rank would wait in a step if only the backend were changed: its wait for bytes, not
// for ranks that came later, in proportion to the bytes that no longer cross links.
func (a *Account) saved(all []transfer, from, to crossing.Way, perHost int) (sum time.Duration) {
	var took, saves [classes]float64
	for _, x := range all {
		c := x.Kind.class()
		took[c] += float64(x.took)
		was, is := x.crosses(from, perHost).busiest(), x.crosses(to, perHost).busiest()
		if was > 0 && !x.small() {
			saves[c] += float64(x.wire) * max(0, 1-is/was)
		}
	}
	for c := range classes {
		if took[c] > 0 {
			sum += time.Duration(float64(a.waited[c]) * saves[c] / took[c])
		}
	}
	return sum
}

// demand returns the bytes that a step passes over a host's link, and in the busier direction those of the first
// Allgather and the last reduction of a step, on average.
func demand(all []transfer, w crossing.Way, perHost, steps int) (sum loads, first, last float64) {
	each := 1 / float64(steps)
	firsts, lasts := map[int]*transfer{}, map[int]*transfer{}
	for i := range all {
		x := &all[i]
		l := x.crosses(w, perHost)
		sum.out, sum.in = sum.out+l.out*each, sum.in+l.in*each
		if old := firsts[x.step]; x.Kind == Allgather && (old == nil || x.Posted < old.Posted) {
			firsts[x.step] = x
		}
		if old := lasts[x.step]; x.Kind.class() == reduces && (old == nil || x.Posted > old.Posted) {
			lasts[x.step] = x
		}
	}
	for _, x := range firsts {
		first += x.crosses(w, perHost).busiest() * each
	}
	for _, x := range lasts {
		last += x.crosses(w, perHost).busiest() * each
	}
	return sum, first, last
}

// seconds is a duration.
func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }
