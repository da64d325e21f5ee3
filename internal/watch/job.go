package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/live"
)

// job is a group, with processes of this host that answer for all its ranks.
type job struct {
	group    string
	asked    []live.Process[group.Live]
	answered []int // ranks that have answered; the next time none but these are waited for
}

// askWithin is what a process may take to answer for all ranks.
const askWithin = 5 * time.Second

// Jobs finds the groups that have ranks on this host, and returns what looks at all ranks of them: one process of this
// host asks those of other hosts. Ranks that do not answer are errors.
func Jobs(directories []string) (look func() ([]Rank, []error), err error) {
	pages, err := live.ReadSoon[group.Live](directories)
	if err != nil {
		return nil, err
	}
	var jobs []*job
	for _, p := range pages {
		for i := range p.Groups {
			name := p.Groups[i].Group
			at := slices.IndexFunc(jobs, func(j *job) bool { return j.group == name })
			if at < 0 {
				at, jobs = len(jobs), append(jobs, &job{group: name})
			}
			jobs[at].asked = append(jobs[at].asked, p)
		}
	}
	return func() (ranks []Rank, errs []error) {
		outcomes := make([]struct {
			ranks []Rank
			errs  []error
		}, len(jobs))
		var all errgroup.Group
		all.SetLimit(mostAsked)
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
	}, nil
}

// SilentError says that a rank which others asked over the mesh has not answered.
type SilentError struct {
	Group string
	Rank  int
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("rank %d of group %s, asked over the mesh: it is stopped, dead or cut off", e.Rank, e.Group)
}

// look asks one process after another until one answers.
func (j *job) look() (ranks []Rank, errs []error) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	for i := range j.asked {
		p := &j.asked[i]
		var said group.Asked
		if err := p.Ask(ctx, j.group, j.answered, &said); err != nil {
			errs = append(errs, fmt.Errorf("process %d, asked for all ranks of group %s: %w", p.PID, j.group, err))
			continue
		}
		errs = nil
		j.answered = nil
		for k := range said.Ranks {
			t := &said.Ranks[k]
			if t.Process == nil || len(t.Groups) != 1 {
				return nil, []error{errors.New("what a rank says is none of this version's")}
			}
			r := Rank{Version: t.Version, Commit: t.Commit, PID: t.PID, Run: t.Run, At: t.At, Host: t.Host, Place: &t.Place, Live: t.Groups[0]}
			ranks = append(ranks, r)
			j.answered = append(j.answered, r.Info.Rank)
		}
		for _, rank := range said.Silent {
			errs = append(errs, &SilentError{j.group, rank})
		}
		return ranks, errs
	}
	return nil, errs
}
