package troubles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/explain"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// Trial is one trouble on one testbed.
type Trial struct {
	Case     *Case
	Cell     *Cell // nil: size and compute are the case's own
	Bed      *testbed.Testbed
	Rank     int // the rank that has the trouble
	Programs programs.Paths
	Watched  time.Duration // for how long the job is looked at

	ctx   context.Context
	plan  Plan
	run   *launch.Run
	nodes *launch.Nodes
	undo  []func() error // last first
}

// Outcome is what came of a trial.
type Outcome struct {
	Right    bool              `json:"right"` // the trouble was named, and nothing else; or nothing where there is none
	Findings []explain.Finding `json:"findings"`
	Job      explain.Job       `json:"job"`
}

const (
	beginTime  = 2 * time.Minute // in which a job must have come to its steps
	beginOps   = 30              // Allgathers that each rank has done by then, or those of beginSteps
	beginSteps = 3
)

// Run trains with the trouble and compares the findings with the expected ones. The testbed is of
// no use afterwards.
func (t *Trial) Run(ctx context.Context) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*beginTime+t.Watched)
	defer cancel()
	t.ctx, t.plan = ctx, t.Case.plan(t.Cell)
	t.plan.Rank = t.Rank
	folder, err := os.MkdirTemp("", "mcast-troubles-")
	if err != nil {
		return o, err
	}
	t.later(func() error { return os.RemoveAll(folder) })
	defer func() {
		for _, f := range slices.Backward(t.undo) {
			err = errors.Join(err, f())
		}
	}()
	pages := filepath.Join(folder, "pages")
	if err := t.start(pages, folder); err != nil {
		return o, err
	}
	look := func() ([]watch.Rank, []error) { return watch.LookClosely([]string{pages}) }
	if err := t.begun(look); err != nil {
		return o, err
	}
	if t.Case.inject != nil {
		if err := t.Case.inject(t); err != nil {
			return o, fmt.Errorf("trouble %s: %w", t.Case.Name, err)
		}
		if err := t.sleep(time.Second); err != nil { // what was in flight before is over
			return o, err
		}
	}
	before, _ := look()
	if err := t.sleep(t.Watched); err != nil {
		return o, err
	}
	after, _ := look()
	jobs := explain.Between(before, after)
	if len(jobs) != 1 || len(jobs[0].Accounts) != jobs[0].Size {
		return o, fmt.Errorf("trouble %s: not all ranks were seen, or have ended: %s", t.Case.Name, launchTail(t.run))
	}
	o.Job = jobs[0]
	o.Findings = explain.Verdict(&o.Job)
	o.Right = t.Case.right(t.Rank, o.Findings)
	return o, nil
}

// later has f called when the trial is over.
func (t *Trial) later(f func() error) { t.undo = append(t.undo, f) }

// start starts the ranks, and the switch before them if the case has one.
func (t *Trial) start(pages, folder string) (err error) {
	if t.Case.Switch {
		if t.nodes, err = launch.StartNodes(t.ctx, t.Bed, launch.NodeOptions{Mcast: t.Programs.Mcast}); err != nil {
			return err
		}
		t.later(t.nodes.Close)
	}
	text, err := json.Marshal(t.plan)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(t.ctx)
	t.run, err = launch.Start(ctx, t.Bed, launch.Job{
		Command: []string{t.Programs.Lab, "testbed", "trouble-worker", string(text)}, Nodes: t.nodes, KeepGoing: true,
		Logs: folder,
		Env:  []string{"MCAST_METRICS=" + pages},
	})
	t.later(func() error {
		stop()
		if t.run != nil {
			_ = t.run.Wait() // it was ended
		}
		return nil
	})
	return err
}

// begun waits until all ranks train.
func (t *Trial) begun(look func() ([]watch.Rank, []error)) error {
	ops := uint64(min(beginOps, beginSteps*2*t.plan.Layers))
	for end := time.Now().Add(beginTime); time.Now().Before(end); {
		ranks, _ := look()
		if len(ranks) == len(t.Bed.Hosts()) &&
			!slices.ContainsFunc(ranks, func(r watch.Rank) bool { return r.Counters["gather_ops"] < ops }) {
			return nil
		}
		if err := t.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("trouble %s: the ranks have not begun to train within %v: %s", t.Case.Name, beginTime,
		launchTail(t.run))
}

func (t *Trial) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// launchTail is the end of the log of rank 0.
func launchTail(r *launch.Run) string {
	const most = 1000
	b, err := os.ReadFile(r.Log(0))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}

// place is the namespace of the rank that the trouble is of.
func (t *Trial) place() string { return t.Bed.Hosts()[t.Rank].Namespace }
