package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// job is a group, with processes of this host that answer for all its ranks.
type job struct {
	group    string
	asked    []live.Process[monitor.Live] // the one that has answered first
	pids     map[int]int                  // by rank of this host
	silent   []int                        // ranks that have not answered; the next time they are not waited for
	answered bool
}

const (
	askWithin = 2*monitor.AnswerWithin + time.Second // what a process may take to answer for all ranks
	mostTries = 3                                    // of processes, one after another
	atOnce    = 4                                    // groups: of each there may be much to read
)

// Jobs finds the groups that have ranks on this host, and returns what looks at all ranks of them: one process of this
// host asks those of other hosts. A rank that does not answer is a *SilentError. Each look also says which processes of
// this host could not be read at first.
func Jobs(directories []string) (look func() ([]Rank, []error)) {
	pages, unread := live.ReadSoon[monitor.Live](directories)
	var jobs []*job
	for _, p := range pages {
		for i := range p.Groups {
			name := p.Groups[i].Group
			at := slices.IndexFunc(jobs, func(j *job) bool { return j.group == name })
			if at < 0 {
				at, jobs = len(jobs), append(jobs, &job{group: name, pids: map[int]int{}})
			}
			jobs[at].asked = append(jobs[at].asked, p)
			jobs[at].pids[p.Groups[i].Info.Rank] = p.PID
		}
	}
	return func() (ranks []Rank, errs []error) {
		errs = slices.Clone(unread)
		outcomes := make([]struct {
			ranks []Rank
			errs  []error
		}, len(jobs))
		var all errgroup.Group
		all.SetLimit(atOnce)
		for i, j := range jobs {
			all.Go(func() error {
				outcomes[i].ranks, outcomes[i].errs = j.look()
				return nil
			})
		}
		_ = all.Wait() // each outcome has its own
		for _, o := range outcomes {
			ranks, errs = append(ranks, o.ranks...), append(errs, o.errs...)
		}
		return ranks, errs
	}
}

// SilentError says that a rank which others asked over the mesh has not answered.
type SilentError struct {
	Group string
	Rank  int
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("rank %d of group %s has not answered the others within %v", e.Rank, e.Group, monitor.AnswerWithin)
}

// look asks one process after another until one answers. Where all have ended after one had answered, it returns
// nothing.
func (j *job) look() (ranks []Rank, errs []error) {
	for i := range j.asked {
		p := &j.asked[i]
		var said monitor.Asked
		err := j.ask(p, &said)
		var ended *live.EndedError
		switch {
		case err == nil:
			ranks, errs = j.read(&said)
			j.asked[0], j.asked[i] = j.asked[i], j.asked[0]
			if j.answered = true; len(ranks) > 0 { // else nobody is to be left out the next time
				j.silent = said.Silent
			}
			return ranks, errs
		case errors.As(err, &ended) && j.answered:
			continue
		case len(errs) < mostTries:
			errs = append(errs, fmt.Errorf("process %d, asked for all ranks of group %s: %w", p.PID, j.group, err))
		}
		if ended == nil && len(errs) == mostTries {
			break
		}
	}
	return nil, errs
}

func (j *job) ask(p *live.Process[monitor.Live], said *monitor.Asked) error {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	return p.Ask(ctx, j.group, j.silent, said)
}

// read returns the ranks that have answered.
func (j *job) read(said *monitor.Asked) (ranks []Rank, errs []error) {
	for _, page := range said.Ranks {
		var t monitor.Snapshot
		if err := json.Unmarshal(page, &t); err != nil || t.Process == nil || len(t.Groups) != 1 {
			errs = append(errs, fmt.Errorf("what a rank of group %s says is none of this version's", j.group))
			continue
		}
		r := Rank{
			Version: t.Version, Commit: t.Commit, PID: t.PID, Run: t.Run, At: t.At, Host: t.Host, Place: &t.Place,
			Live: t.Groups[0],
		}
		if pid, here := j.pids[r.Info.Rank]; here { // neither the claimed number nor one of a PID namespace
			r.PID, r.Here = pid, pid != 0
		}
		ranks = append(ranks, r)
	}
	for _, rank := range said.Silent {
		errs = append(errs, &SilentError{j.group, rank})
	}
	return ranks, errs
}
