package advise

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Finding is what can be changed, or why nothing has to be.
type Finding struct {
	Cause   string   `json:"cause"` // short and always the same; docs/how-to/advise.md has all
	What    string   `json:"what"`
	Figures []string `json:"figures"` // that show it
	Remedy  string   `json:"remedy"`
	Share   float64  `json:"share"` // of a step, at most; findings are in its descending order
}

const (
	matters   = 0.05 // of a step: a smaller gain is not worth a change
	lateness  = 0.25 // of the time of collectives: above, late ranks are a finding
	bothLeast = 0.10 // of the shorter kind: if less overlaps the other kind, they wait for each other
	fullness  = 0.5  // of the link's given rate: a backend that reaches less does not fill it
	manySmall = 8    // collectives a step that are worth joining
)

// advice returns the changes to make, the largest gain first.
func (r *Report) advice(all [][]transfer) []Finding {
	exposed := r.mean(func(a *Account) time.Duration { return a.Exposed })
	found := r.host()
	if r.endless() {
		return append(found, Finding{
			Cause: "no-ends", What: "torch.profiler has not seen when collectives ended: they were in flight when it stopped, " +
				"or an old torch-mcast did not show it ends on other threads",
			Figures: []string{percent(r.Endless) + " of them end when it stops"},
			Remedy: "profile more steps, with the present torch-mcast; for a job that runs over it use " +
				"torch_mcast.fsdp.enable(model).explain(), or mcast explain", Share: 1,
		})
	}
	if r.of(exposed) < matters {
		return append(found, Finding{
			Cause: "hidden", What: "there is nothing to gain: communication is hidden behind compute",
			Figures: []string{fmt.Sprintf("%s of a step are exposed", percent(r.of(exposed)))},
			Remedy:  "nothing; with more ranks, faster GPUs or smaller batches look again", Share: r.of(exposed),
		})
	}
	found = slices.Concat(found, r.lateRanks(), r.serial(), r.prefetches(), r.bound(), r.small(all), r.types(all),
		r.unfilled())
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(b.Share, a.Share) })
	return found
}

// of is the part of a step.
func (r *Report) of(d time.Duration) float64 { return float64(d) / float64(max(r.Step, 1)) }

// exposedOf is the mean exposed time of a class over all ranks.
func (r *Report) exposedOf(c class) time.Duration {
	return r.mean(func(a *Account) time.Duration { return a.exposed[c] })
}

func (r *Report) host() []Finding {
	if r.World > r.PerHost || r.World == 0 {
		return nil
	}
	return []Finding{{
		Cause: "one-host", What: "all ranks are on one host: nothing crosses a link",
		Figures: []string{fmt.Sprintf("%d ranks, %d a host (%s)", r.World, r.PerHost, r.PerHostFrom)},
		Remedy:  "--ranks-per-host, if that is wrong; mcast bench measures the gain of shared memory", Share: 1,
	}}
}

// lateRanks says that ranks wait for ranks.
func (r *Report) lateRanks() []Finding {
	took := time.Duration(0)
	for i := range r.Rows {
		took += r.Rows[i].Time
	}
	share := float64(r.Late) / float64(max(took, 1))
	exposed := r.mean(func(a *Account) time.Duration { return a.Exposed })
	if !r.Known || share < lateness {
		return nil
	}
	slowest := slices.MaxFunc(r.Ranks, func(a, b Account) int { return cmp.Compare(a.Step-a.Exposed, b.Step-b.Exposed) })
	return []Finding{{
		Cause: "late-ranks", What: "ranks wait for others that come later: a faster network does not help",
		Figures: []string{
			fmt.Sprintf("%s of the time that collectives are under way", percent(share)),
			fmt.Sprintf("rank %d takes %s a step besides exposed communication, all ranks in the mean %s", slowest.Rank,
				ms(slowest.Step-slowest.Exposed), ms(r.Step-exposed)),
		},
		Remedy: "even out what ranks compute and load; over torch-mcast, mcast explain says which is late and why",
		Share:  share * r.of(exposed),
	}}
}

// serial says that Allgathers and reductions do not overlap.
func (r *Report) serial() []Finding {
	gather, reduce := r.exposedOf(gathers), r.exposedOf(reduces)
	flightG := r.mean(func(a *Account) time.Duration { return a.Gathers })
	flightR := r.mean(func(a *Account) time.Duration { return a.Reduces })
	both := r.mean(func(a *Account) time.Duration { return a.Both })
	if r.of(gather) < matters || r.of(reduce) < matters || float64(both) >= bothLeast*float64(min(flightG, flightR)) {
		return nil
	}
	f := Finding{
		Cause: "serial", What: "Allgathers and reductions take turns, where they could share the link",
		Figures: []string{fmt.Sprintf("exposed %s and %s, under way at once %s", ms(gather), ms(reduce), ms(both))},
		Remedy:  "torch_mcast.fsdp.enable(model), which leaves Reduce-Scatters in flight", Share: r.of(min(gather, reduce)),
	}
	if len(r.Predictions) == 2 && r.Predictions[1].Link < r.Predictions[0].Link {
		f.Figures = append(f.Figures, fmt.Sprintf("at once they fill a link for %s, with a switch that adds for %s",
			ms(r.Predictions[0].Link), ms(r.Predictions[1].Link)))
		f.Remedy += "; a switch that adds gains only then"
	}
	return []Finding{f}
}

// prefetches says that Allgathers are waited for beside compute that hides none.
func (r *Report) prefetches() []Finding {
	exposed := r.exposedOf(gathers)
	alone := r.mean(func(a *Account) time.Duration { return a.Computed - (a.InFlight - a.Exposed) })
	gain := min(exposed, alone)
	if r.of(gain) < matters {
		return nil
	}
	return []Finding{{
		Cause: "few-prefetches", What: "Allgathers are waited for, and there is compute to hide them behind",
		Figures: []string{fmt.Sprintf("exposed %s a step, computed with nothing under way %s", ms(exposed), ms(alone))},
		Remedy: "torch_mcast.fsdp.enable(model, prefetch=N), or set_modules_to_forward_prefetch and " +
			"set_modules_to_backward_prefetch", Share: r.of(gain),
	}}
}

// bound says that links are slower than compute: some communication stays exposed.
func (r *Report) bound() []Finding {
	if len(r.Predictions) == 0 {
		return nil
	}
	compute := r.mean(func(a *Account) time.Duration { return a.Step - a.Exposed })
	p := r.Predictions[0]
	if r.of(p.Link-compute) < matters {
		return nil
	}
	f := Finding{
		Cause: "network-bound", What: "the bytes of a step take longer on a host's link than all that hides them",
		Figures: []string{fmt.Sprintf("link %s over torch-mcast, compute and all else %s", ms(p.Link), ms(compute))},
		Remedy:  "a larger batch or accumulated gradients, bf16, reshard_after_forward=False, a faster link",
		Share:   r.of(p.Link - compute),
	}
	if s := r.Predictions[1]; s.Link < p.Link {
		f.Figures = append(f.Figures, fmt.Sprintf("with a switch that adds %s", ms(s.Link)))
	}
	return []Finding{f}
}

// small says that many collectives are too short for bandwidth to count.
func (r *Report) small(all [][]transfer) []Finding {
	var took, short, n, steps float64
	for i, of := range all {
		steps += float64(r.Ranks[i].Steps)
		for _, x := range of {
			if x.Kind.class() == rest {
				continue
			}
			took += float64(x.took)
			if x.Bytes > 0 && x.small() {
				short += float64(x.took)
				n++
			}
		}
	}
	exposed := r.exposedOf(gathers) + r.exposedOf(reduces)
	share := short / max(took, 1) * r.of(exposed)
	if n/max(steps, 1) < manySmall || share < matters {
		return nil
	}
	return []Finding{{
		Cause: "small-messages",
		What: fmt.Sprintf("many collectives have less than %d KiB a rank, where delays count and bytes do not",
			smallShard>>10),
		Figures: []string{fmt.Sprintf("%.0f a step, %s of the time that collectives are under way", n/steps,
			percent(short/max(took, 1)))},
		Remedy: "fully_shard on larger modules, a larger bucket_cap_mb with DDP", Share: share,
	}}
}

// types says that weights travel in more bits than compute may need.
func (r *Report) types(all [][]transfer) []Finding {
	var wide, bytes float64
	for _, of := range all {
		for _, x := range of {
			if x.Kind == Allgather {
				bytes += float64(x.Bytes)
				if x.Type == "float32" || x.Type == "float64" {
					wide += float64(x.Bytes)
				}
			}
		}
	}
	share := wide / max(bytes, 1) * r.of(r.exposedOf(gathers)) / 2
	if share < matters {
		return nil
	}
	return []Finding{{
		Cause: "wide-types", What: "weights are gathered in 32 bits",
		Figures: []string{fmt.Sprintf("%s of what Allgathers move", percent(wide/bytes))},
		Remedy:  "MixedPrecisionPolicy(param_dtype=torch.bfloat16), if the training bears it: half the bytes", Share: share,
	}}
}

// unfilled says that the backend does not fill the link.
func (r *Report) unfilled() []Finding {
	if r.LinkFrom != "as told" || r.Best == 0 || r.Best >= fullness*r.Link {
		return nil
	}
	exposed := r.exposedOf(gathers) + r.exposedOf(reduces)
	return []Finding{{
		Cause: "link-not-filled", What: "the link could carry more than large collectives have put on it",
		Figures: []string{fmt.Sprintf("%s of %s", rate(r.Best), rate(r.Link))},
		Remedy:  "mcast doctor says what holds hosts and links back; the shorter predicted step counts on a full link",
		Share:   r.of(exposed) * (1 - r.Best/r.Link),
	}}
}
