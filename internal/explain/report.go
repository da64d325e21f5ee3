package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// Report has the findings about all jobs that were examined.
type Report struct {
	Jobs []Explained `json:"jobs"`
	// Missing says which hosts or processes did not answer.
	Missing []string `json:"missing"`
	// Ended says which jobs have ended while they were looked at.
	Ended []string `json:"ended"`
}

// Explained is a job with its verdict.
type Explained struct {
	Job
	Findings []Finding `json:"findings"`
}

// Of returns the report of some jobs.
func Of(jobs []Job, missing []error) *Report {
	r := &Report{Jobs: []Explained{}, Missing: []string{}, Ended: []string{}}
	for _, err := range missing {
		var silent *watch.SilentError
		if errors.As(err, &silent) {
			if i := slices.IndexFunc(jobs, func(j Job) bool { return j.Group == silent.Group }); i >= 0 {
				jobs[i].Silent = append(jobs[i].Silent, silent.Rank)
				continue
			}
		}
		r.Missing = append(r.Missing, err.Error())
	}
	for i := range jobs {
		r.Jobs = append(r.Jobs, Explained{jobs[i], append([]Finding{}, Verdict(&jobs[i])...)})
	}
	return r
}

// Found reports whether there is a finding. That a group has ended is none: trainings do.
func (r *Report) Found() bool {
	for i := range r.Jobs {
		if len(r.Jobs[i].Findings) > 0 {
			return true
		}
	}
	return false
}

const legend = `In flight: the part of that time with a collective under way. Then how long operations waited, added up over operations beside each other: for
older ones, for other ranks to begin, for a turn or credit to send, for bytes, for the last word of others. Repairs: the part of
the received chunks that came by repair. Link: the part in use.`

// Lines are it for people: the worst job first, and a line for each that is well, unless there is no other.
func (r *Report) Lines() (lines []string) {
	jobs := slices.Clone(r.Jobs)
	slices.SortStableFunc(jobs, func(a, b Explained) int { return cmp.Compare(b.worst(), a.worst()) })
	if r.Found() || len(jobs) == 1 {
		lines = append(strings.Split(legend, "\n"), "")
	}
	for i := range jobs {
		e := &jobs[i]
		if len(e.Findings) == 0 && len(jobs) > 1 {
			lines = append(lines, e.head()+": no trouble was found")
			continue
		}
		lines = append(append(lines, e.lines()...), "")
	}
	for _, e := range r.Ended {
		lines = append(lines, strings.Split(e, "\n")...)
	}
	for _, m := range r.Missing {
		lines = append(lines, "does not answer: "+m)
	}
	return trimmed(lines)
}

// trimmed leaves out empty lines at the end.
func trimmed(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// worst is the share of its worst finding, 0 if there is none.
func (e *Explained) worst() float64 {
	if len(e.Findings) == 0 {
		return 0
	}
	return max(e.Findings[0].Share, 1e-9)
}

func (e *Explained) head() string {
	first := &e.Accounts[0]
	head := fmt.Sprintf("group %s: %d of %d ranks for %v, fabric %s", e.Group, len(e.Accounts), e.Size,
		first.Span.Round(100*time.Millisecond), first.Fabric)
	if first.Interface != "" {
		head += " on " + first.Interface
	}
	if e.Run != "" {
		head += ", run " + e.Run
	}
	return head
}

func (e *Explained) lines() []string {
	lines := []string{
		e.head(),
		fmt.Sprintf("%5s %10s %7s %7s %7s %7s %7s %8s %6s  %s", "rank", "in flight", "queued", "begin", "turn", "bytes",
			"word", "repairs", "link", "host"),
	}
	for i := range e.Accounts {
		lines = append(lines, e.Accounts[i].line())
	}
	if unseen := e.Size - len(e.Accounts) - len(e.Silent); unseen > 0 {
		lines = append(lines,
			fmt.Sprintf("Ranks that were not looked at: %d. Ranks are compared with each other, so look at all (--job, "+
				"--hosts).", unseen))
	}
	if len(e.Findings) == 0 {
		return append(lines, "No trouble was found.")
	}
	for i := range e.Findings {
		lines = append(lines, e.Findings[i].lines()...)
	}
	return lines
}

// line is a rank's.
func (a *Account) line() string {
	phase := func(name string) string {
		return percent((a.count("gather_"+name+"_ns") + a.count("reduce_"+name+"_ns")) / float64(max(a.Span, 1)))
	}
	repaired, _ := a.repairedShare()
	used := "-"
	if a.capacity() > 0 {
		used = percent(a.used())
	}
	where := a.Host
	if a.Address != "" {
		where += " " + a.Address
	}
	return fmt.Sprintf("%5d %10s %7s %7s %7s %7s %7s %8s %6s  %s", a.Rank, percent(a.busy()), phase("queued"),
		phase("peers"), phase("turn"),
		phase("transfer"), phase("finish"), percent(repaired), used, strings.TrimSpace(where))
}

func (f *Finding) lines() []string {
	head := fmt.Sprintf("%s: %s", f.Limit, f.Cause)
	if len(f.Ranks) > 0 {
		head += ", " + strings.TrimSpace(plural(f.Ranks, "", ""))
	}
	lines := []string{"", head, "  " + f.What}
	for _, figure := range f.Figures {
		lines = append(lines, "  - "+figure)
	}
	return append(lines, "  Helps: "+f.Remedy)
}
