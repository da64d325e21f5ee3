package monitor

import (
	"cmp"
	"slices"
	"sync"
)

// mostAwaited bounds the ranks listed on a page, by each of two measures (waits and repairs): a page of a thousand
// ranks would say little about most of them.
const mostAwaited = 32

// keeps is the share of a rank's waits that still counts a second later, when the most awaited ranks are chosen.
// After 36 seconds a third is left: a rank that was slow yesterday makes room for one that is slow now.
const keeps = 0.97

// Recent knows which ranks were waited for most in recent time. A page shows how long a rank was waited for since Join,
// like all counters. But a reader who compares two pages must find the ranks that were waited for meanwhile on both
// of them.
type Recent struct {
	mu             sync.Mutex
	waits, repairs decaying // by rank
}

// decaying holds a sum for each rank, in which old waits count less.
type decaying struct{ was, sum []float64 }

// at returns the sum of a rank; now is its total since Join, in which nothing has faded.
func (d *decaying) at(rank int, now float64) float64 {
	if rank >= len(d.was) {
		return now
	}
	return d.sum[rank] + max(0, now-d.was[rank])
}

// fade lets a second pass.
func (d *decaying) fade(rank int, now float64) {
	for len(d.was) <= rank {
		d.was, d.sum = append(d.was, 0), append(d.sum, 0)
	}
	d.sum[rank], d.was[rank] = keeps*d.at(rank, now), now
}

// Pass lets a second pass in which something was in flight.
func (r *Recent) Pass(all []Awaited) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		a := &all[i]
		r.waits.fade(a.Rank, float64(a.Sum()))
		r.repairs.fade(a.Rank, float64(a.Repaired))
	}
}

// Most returns, in ascending order, the rank self, the ranks that were waited for most in recent time, and the ranks
// with the most repairs; and how many others were waited for. It reorders all.
func (r *Recent) Most(self int, all []Awaited) (some []Awaited, others int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	front := 0 // so many are chosen
	choose := func(most int, weight func(a *Awaited) float64) {
		rest := all[front:]
		slices.SortFunc(rest, func(a, b Awaited) int { return cmp.Or(cmp.Compare(weight(&b), weight(&a)), a.Rank-b.Rank) })
		for i := 0; i < min(most, len(rest)) && weight(&rest[i]) > 0; i++ {
			front++
		}
	}
	choose(1, func(a *Awaited) float64 {
		if a.Rank == self {
			return 1
		}
		return 0
	})
	choose(mostAwaited, func(a *Awaited) float64 { return r.waits.at(a.Rank, float64(a.Sum())) })
	choose(mostAwaited, func(a *Awaited) float64 { return r.repairs.at(a.Rank, float64(a.Repaired)) })
	some, others = all[:front], len(all)-front
	slices.SortFunc(some, func(a, b Awaited) int { return a.Rank - b.Rank })
	return some, others
}
