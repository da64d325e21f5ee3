package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// Limit is what a job waits for that is slower than it could be, after TCP's extended statistics (RFC 4898), which tell
// sender, receiver and network apart.
type Limit string

// The limits.
const (
	Application Limit = "application" // what a rank does between its collectives
	Sender      Limit = "sender"
	Receiver    Limit = "receiver"
	Network     Limit = "network"
	Host        Limit = "host" // on which a rank runs
	Switch      Limit = "switch"
	Settings    Limit = "settings" // of the job
)

// Finding is why a job is slower than it could be.
type Finding struct {
	Cause   string   `json:"cause"` // short and always the same; docs/how-to/slow-job.md has all
	Limit   Limit    `json:"limit"`
	Group   string   `json:"group"`
	Ranks   []int    `json:"ranks"` // ranks with this trouble, ascending; none: the whole job has it
	What    string   `json:"what"`
	Figures []string `json:"figures"` // that show it
	Remedy  string   `json:"remedy"`
	// Share is which part of the interval other ranks lose by it, or the weight of what shows it; findings are in its
	// descending order.
	Share float64 `json:"share"`

	also []int // further ranks with this trouble; other findings about them stay
}

// most bounds the findings: more than these have a cause in common, and the first ones help most.
const most = 4

// Verdict returns the causes that make a job slow, the worst first; nothing if it is well. A finding that follows from
// another one is left out: a rank that a quota keeps from running is late for that reason alone.
func Verdict(j *Job) []Finding {
	if len(j.Accounts) == 0 || j.Size < 1 || j.Size > group.MaxRanks { // a process may publish anything
		return nil
	}
	found := ended(j)
	if len(found) > 0 {
		found = append(silent(j), found...)
	} else {
		direct := slices.Concat(silent(j), quotas(j), losses(j), otherTraffic(j), interfaces(j), switches(j))
		found = append(direct, unicast(j)...)
		awaited := j.waitedFor()
		for _, f := range slices.Concat(late(j, awaited), slow(j, awaited), unseen(j, awaited)) {
			if !slices.ContainsFunc(direct, func(d Finding) bool { return explains(&d, f.Ranks) }) {
				found = append(found, f)
			}
		}
		found = append(found, small(j)...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(b.Share, a.Share) })
	found = found[:min(len(found), most)]
	for i := range found {
		f := &found[i]
		f.Group = j.Group
		f.Ranks = append(f.Ranks, f.also...)
		slices.Sort(f.Ranks)
	}
	return found
}

// explains reports whether a finding says why all of some ranks are late or slow.
func explains(d *Finding, ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(r int) bool { return !slices.Contains(d.Ranks, r) })
}

// ended says that a job has failed or stands still. Nothing else matters then.
func ended(j *Job) (found []Finding) {
	for i := range j.Accounts {
		if a := &j.Accounts[i]; a.Failed != "" {
			return []Finding{{
				Cause: "failed", Limit: Application, Ranks: []int{a.Rank},
				What:    "the group has failed: all its operations end with an error",
				Figures: []string{a.Failed},
				Remedy:  "the error names the rank that reported it; docs/reference/messages.md explains it", Share: 1,
			}}
		}
	}
	return stalled(j)
}

// silent says which ranks have not answered the others.
func silent(j *Job) []Finding {
	if len(j.Silent) == 0 {
		return nil
	}
	return []Finding{{
		Cause: "no-answer", Limit: Application, Ranks: j.Silent, Share: 1,
		What: fmt.Sprintf("%s not answered the others: stopped, dead, cut off, or without a core for long",
			plural(j.Silent, "has", "have")),
		Figures: []string{fmt.Sprintf("%d of %d ranks answered within %v", len(j.Accounts), j.Size, monitor.AnswerWithin)},
		Remedy: "look at its process on its host (ps shows T for one that is stopped) and at its log; mcast doctor looks " +
			"at the path",
	}}
}

// standsStill is from when on a wait is told by itself; a rank's log does so from then on, too.
const standsStill = 5 * time.Second

// stalled says for whom ranks wait in an operation that does not move. Who is waited for and waits itself is no cause.
func stalled(j *Job) []Finding {
	waits := map[int]bool{}
	by := map[int]int{}
	var longest time.Duration
	operation := ""
	for i := range j.Accounts {
		for _, w := range j.Accounts[i].Waiting {
			if w.For < standsStill {
				continue
			}
			waits[j.Accounts[i].Rank] = true
			for _, r := range w.Ranks {
				by[r]++
			}
			if w.For > longest {
				longest, operation = w.For, w.Operation
			}
		}
	}
	var first []int
	for r := range by {
		if !waits[r] {
			first = append(first, r)
		}
	}
	if longest == 0 {
		return nil
	}
	slices.Sort(first)
	f := Finding{
		Cause: "stalled", Limit: Application, Ranks: first, Share: 1,
		What:    fmt.Sprintf("nothing has moved for %v in %s", longest.Round(time.Second), operation),
		Figures: []string{fmt.Sprintf("%d rank(s) wait", len(waits))},
		Remedy:  "see where it stands: " + j.stacks(first) + ", and its log",
	}
	switch {
	case len(first) > 0:
		f.What += fmt.Sprintf(": %s not come", plural(first, "has", "have"))
	default:
		f.Limit, f.Remedy = Network, "they wait for each other: mcast doctor on their hosts looks at the paths between them"
		if dead := j.deadLinks(); dead != nil {
			f.Ranks = dead
			f.Figures = append(f.Figures,
				"nothing at all goes out of the interface of "+strings.TrimSpace(plural(dead, "", ""))+", or comes in by it")
		}
	}
	return []Finding{f}
}

// deadLinks are the ranks with an interface that has passed no bytes one way, while interfaces of others have passed
// some. An interface does not count the bytes of RDMA, so ranks with RDMA are left out.
func (j *Job) deadLinks() (ranks []int) {
	for i := range j.Accounts {
		a := &j.Accounts[i]
		counted := a.Fabric == "udp" &&
			slices.ContainsFunc(a.Place.Links, func(l hoststat.Interface) bool { return l.Name == a.Interface })
		if p := &a.Place; counted && (p.InBytes == 0 || p.OutBytes == 0) {
			ranks = append(ranks, a.Rank)
		}
	}
	if len(ranks) == len(j.Accounts) { // a job on one host, which uses no interface, or an idle job
		return nil
	}
	return ranks
}

// stacks says how to see what some ranks do.
func (j *Job) stacks(ranks []int) string {
	var commands []string
	for i := range j.Accounts {
		if a := &j.Accounts[i]; slices.Contains(ranks, a.Rank) && a.PID != 0 && len(commands) < most {
			commands = append(commands, fmt.Sprintf("py-spy dump --pid %d on %s", a.PID, a.Host))
		}
	}
	if commands == nil {
		return "py-spy dump on its host"
	}
	return strings.Join(commands, ", ")
}

// plural is "rank 3 has" or "ranks 3, 5 have".
func plural(ranks []int, one, many string) string {
	words := make([]string, len(ranks))
	for i, r := range ranks {
		words[i] = fmt.Sprint(r)
	}
	if len(ranks) == 1 {
		return "rank " + words[0] + " " + one
	}
	return "ranks " + strings.Join(words, ", ") + " " + many
}

// percent is a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// median returns the median of one number or more; of an even count the lower one of the two in the middle.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)/2]
}

// each returns a figure of every rank that was seen.
func (j *Job) each(f func(a *Account) float64) []float64 {
	all := make([]float64, len(j.Accounts))
	for i := range j.Accounts {
		all[i] = f(&j.Accounts[i])
	}
	return all
}

// without returns all figures but one.
func without(all []float64, i int) []float64 { return slices.Concat(all[:i], all[i+1:]) }
