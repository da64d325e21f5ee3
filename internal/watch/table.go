package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// Table shows activities to people, group by group, in lines. Groups with trouble come first. If there are several
// groups, idle ones without trouble have one line each, at the end.
func Table(all []Activity) (lines []string) {
	groups := groupsOf(all)
	for i, g := range groups {
		if len(groups) > 1 && urgency(g) == 0 {
			lines = append(lines, headOf(g)+": idle")
			continue
		}
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, tableOf(g)...)
	}
	return lines
}

// groupsOf returns activities by group: groups with trouble first, idle groups last.
func groupsOf(all []Activity) (groups [][]Activity) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Group == all[0].Group {
			n++
		}
		groups, all = append(groups, all[:n]), all[n:]
	}
	slices.SortStableFunc(groups, func(a, b []Activity) int { return cmp.Compare(urgency(b), urgency(a)) })
	return groups
}

// urgency is 2 of a group with trouble, 1 of one at work, 0 of one that does nothing.
func urgency(all []Activity) int {
	switch {
	case len(troubles(all)) > 0:
		return 2
	case slices.ContainsFunc(all, func(a Activity) bool { return a.Gather.busy() || a.Reduce.busy() }):
		return 1
	}
	return 0
}

func (l *Lane) busy() bool { return l.Ops > 0 || l.InFlight > 0 }

func headOf(all []Activity) string {
	first := &all[0]
	head := fmt.Sprintf("group %s: %d of %d ranks are here, fabric %s", first.Group, len(all), first.Size, first.Fabric)
	if first.Interface != "" {
		head += " on " + first.Interface
	}
	if first.Run != "" {
		head += ", run " + first.Run
	}
	return head
}

// tableOf shows those of a group.
func tableOf(all []Activity) []string {
	first := &all[0]
	lines := []string{
		headOf(all),
		fmt.Sprintf("Allgather by %s; Reduce-Scatter: %s (%s)", first.Allgather, first.ReduceScatter,
			first.ReduceScatterReason),
		fmt.Sprintf("%5s %8s | %8s %9s %8s %8s %6s | %8s %9s %8s %8s %6s | %9s %9s", "rank", "pid",
			"gather/s", "mean us", "out GB/s", "in GB/s", "flying", "reduce/s", "mean us", "out GB/s", "in GB/s", "flying",
			"repairs/s", "fallbacks"),
	}
	for i := range all {
		a := &all[i]
		g, r := &a.Gather, &a.Reduce
		lines = append(lines, fmt.Sprintf("%5d %8d | %8.0f %9.0f %8.3f %8.3f %6d | %8.0f %9.0f %8.3f %8.3f %6d | %9.0f %9d",
			a.Rank, a.PID, g.Ops, g.MeanUS, g.OutGB, g.InGB, g.InFlight, r.Ops, r.MeanUS, r.OutGB, r.InGB, r.InFlight, a.Repairs,
			a.Fallbacks))
	}
	return append(lines, troubles(all)...)
}

// lateness is that ranks wait for another one in an operation.
type lateness struct {
	rank      int
	operation string
	waits     []string // ranks
	longest   time.Duration
	why       string // of the longest
}

// troubles says who is late, whom that keeps, and what else is wrong.
func troubles(all []Activity) (lines []string) {
	var late []*lateness
	for i := range all {
		a := &all[i]
		for k := range a.Waiting {
			w := &a.Waiting[k]
			for _, r := range w.Ranks {
				late = add(late, r, a.Rank, w)
			}
			if len(w.Ranks) == 0 {
				lines = append(lines, fmt.Sprintf("rank %d: %v", a.Rank, w))
			}
		}
		if a.Warnings > 0 {
			lines = append(lines,
				fmt.Sprintf("rank %d: %d warning(s), in its log and in the notes of info()", a.Rank, a.Warnings))
		}
		if a.Failed != "" {
			lines = append(lines, fmt.Sprintf("rank %d: failed: %s", a.Rank, a.Failed))
		}
	}
	slices.SortStableFunc(late, func(a, b *lateness) int { return cmp.Compare(b.longest, a.longest) })
	for _, l := range late {
		lines = append(lines, fmt.Sprintf("rank %d is late, for %v, in %s: rank(s) %s wait for it (%s)",
			l.rank, l.longest.Round(time.Second), l.operation, strings.Join(l.waits, ", "), l.why))
	}
	return lines
}

// add notes that a rank waits for a late one.
func add(all []*lateness, late, rank int, w *monitor.Waiting) []*lateness {
	i := slices.IndexFunc(all, func(l *lateness) bool { return l.rank == late && l.operation == w.Operation })
	if i < 0 {
		i, all = len(all), append(all, &lateness{rank: late, operation: w.Operation})
	}
	l := all[i]
	l.waits = append(l.waits, fmt.Sprint(rank))
	if w.For > l.longest {
		l.longest, l.why = w.For, w.Why
	}
	return all
}
