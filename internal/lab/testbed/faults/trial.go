package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// Outcome is what came of a row, once.
type Outcome struct {
	Row     string    `json:"row"`
	Run     int       `json:"run"`
	Kept    bool      `json:"kept"`
	Why     []string  `json:"why,omitempty"` // it was not kept
	At      time.Time `json:"at"`
	Took    float64   `json:"took_s"`  // until the last rank was told, or until all went on
	Bound   float64   `json:"bound_s"` // what was promised
	Longest float64   `json:"longest_operation_ms"`
	Errors  []string  `json:"errors,omitempty"` // each text that ranks got, once
}

const (
	ranksOfAJob = 4
	beginTime   = 30 * time.Second // in which a job must have begun that nothing disturbs
	roundsAfter = 3                // that each rank does after the fault, before it counts as over
)

// trial is one run of a row.
type trial struct {
	*Scene
	slack time.Duration // that a busy machine may add to the bound
	// watched: in all, from the fault on: a job that ends after its bound is late, one that does not end hangs
	watched time.Duration
	logs    string
	stop    string // the file that ends the rounds
	began   time.Time
	over    time.Time // the fault is there, or is over
	outcome Outcome
}

// try runs a row once. The error says that it could not be tried.
func (l *lab) try(ctx context.Context, row *Row, run int) (o Outcome, err error) {
	b, err := l.bed(ctx, row.Over)
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &trial{Scene: &Scene{ctx: ctx, row: row, tb: b.tb, ranks: newRanks(ranksOfAJob)}, slack: l.Slack,
		watched: row.bound() + l.Slack + l.Patience,
		outcome: Outcome{Row: row.ID, Run: run, At: time.Now(), Bound: row.bound().Seconds()}}
	if t.logs, err = os.MkdirTemp("", "mcast-faults-"); err != nil {
		return Outcome{}, err
	}
	t.stop = filepath.Join(t.logs, "stop")
	defer func() {
		if row.job.after != nil {
			err = errors.Join(err, row.job.after(t.Scene))
		}
		err = errors.Join(err, t.tb.Heal(), os.RemoveAll(t.logs))
	}()
	if b.switched {
		if t.nodes, err = launch.StartNodes(ctx, t.tb, launch.NodeOptions{Mcast: l.Programs.Mcast}); err != nil {
			return Outcome{}, err
		}
		defer func() {
			if died := t.nodes.Close(); died != nil {
				o.Why, o.Kept = append(o.Why, died.Error()), false
			}
		}()
	}
	if row.job.before != nil {
		if err := row.job.before(t.Scene); err != nil {
			return Outcome{}, err
		}
	}
	if err := t.start(l.Programs.Lab, b.counts); err != nil {
		return Outcome{}, err
	}
	err = t.watch()
	if !errors.Is(err, errHang) && err != nil {
		cancel(err)
		return Outcome{}, errors.Join(err, t.ended())
	}
	t.end(err, cancel)
	t.outcome.Why, t.outcome.Kept = t.why, len(t.why) == 0
	return t.outcome, nil
}

// start starts the ranks.
func (t *trial) start(lab string, counts []int) (err error) {
	j := &t.row.job
	plan := worker.Plan{Operations: j.operations, Bytes: j.bytes, Rounds: j.rounds, Stop: t.stop, Acts: j.acts}
	if plan.Operations == nil {
		plan.Operations = []string{"allgather", "reducescatter", "allreduce", "broadcast", "barrier"}
	}
	if t.row.Over == Net {
		plan.Operations = []string{worker.Ring}
	}
	if plan.Bytes == 0 {
		plan.Bytes = defaultBytes
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	env := []string{"MCAST_SWITCH_TIMEOUT=" + switchTimeout.String()}
	for name, limit := range map[string]time.Duration{
		"MCAST_TIMEOUT": t.row.timeout(), "MCAST_JOIN_TIMEOUT": joinTimeout,
	} {
		if t.row.Bound.Of != name {
			limit += t.slack
		}
		env = append(env, name+"="+limit.String())
	}
	t.began = time.Now()
	t.run, err = launch.Start(t.ctx, t.tb, launch.Job{
		Command: []string{lab, "testbed", "fault-worker", string(text)}, Env: append(env, j.env...), Counts: counts,
		Nodes: t.nodes, KeepGoing: true, Logs: t.logs,
		Output: func(rank int) (stdout, stderr io.Writer) { return t.ranks.writer(rank), nil },
	})
	return err
}

// ended waits for the end of all ranks. That one has died is no error here.
func (t *trial) ended() error {
	err := t.run.Wait()
	var died *launch.DeadRankError
	if errors.As(err, &died) || t.ctx.Err() != nil {
		return nil
	}
	return err
}

// watch breaks the job as the row says, and returns when the job has come to the promised end, or
// will not come to it.
func (t *trial) watch() error {
	j := &t.row.job
	t.over = t.began
	if j.during != nil {
		if err := t.until("begun", time.Now().Add(beginTime+t.slack), func(all []said) bool {
			return each(all, func(_ int, s *said) bool { return s.joined && (j.early || s.round > 0) })
		}); err != nil {
			return err
		}
		t.began = time.Now()
		if err := j.during(t.Scene); err != nil {
			return fmt.Errorf("row %s: its fault: %w", t.row.ID, err)
		}
		t.over = time.Now()
	}
	if err := t.acts(); err != nil {
		return err
	}
	if t.row.Ends == Errors {
		return t.untilTold()
	}
	return t.untilOver()
}

// acts waits until ranks have begun their own acts.
func (t *trial) acts() error {
	for _, a := range t.row.job.acts {
		var at time.Time
		if err := t.until("come to "+a.Do, time.Now().Add(beginTime+t.slack), func(all []said) bool {
			at = all[a.Rank].acted
			return !at.IsZero()
		}); err != nil {
			return err
		}
		if t.row.job.during == nil {
			t.began = at
		}
		if end := at.Add(a.For); end.After(t.over) {
			t.over = end
		}
	}
	return nil
}

// untilTold waits until every rank that must learn of the fault has.
func (t *trial) untilTold() error {
	deadline := t.began.Add(t.watched)
	err := t.until("been told", deadline, func(all []said) bool {
		return each(all, func(rank int, s *said) bool { return s.failed != nil || !t.row.mustReport(rank) })
	})
	t.ranks.look(func(all []said) {
		for rank := range all {
			if f := all[rank].failed; f != nil && t.row.mustReport(rank) {
				t.outcome.Took = max(t.outcome.Took, f.At.Sub(t.began).Seconds())
			}
		}
	})
	return err
}

// untilOver waits until every rank has gone on after the fault, has ended its rounds and has closed
// the group.
func (t *trial) untilOver() error {
	deadline := t.over.Add(t.watched)
	if t.row.job.rounds == 0 {
		var from [ranksOfAJob]int
		t.ranks.look(func(all []said) {
			for rank := range all {
				from[rank] = all[rank].round
			}
		})
		if err := t.until("gone on", deadline, func(all []said) bool {
			return failed(all) || each(all, func(rank int, s *said) bool {
				return s.round >= from[rank]+roundsAfter && (t.row.Route == "" || s.route == t.row.Route)
			})
		}); err != nil {
			return err
		}
		t.outcome.Took = time.Since(t.over).Seconds()
		if err := os.WriteFile(t.stop, nil, 0o600); err != nil {
			return err
		}
		deadline = time.Now().Add(t.watched)
	}
	if err := t.until("closed", deadline, func(all []said) bool {
		return each(all, func(_ int, s *said) bool { return s.closed != nil || s.failed != nil && !s.joined })
	}); err != nil {
		return err
	}
	if t.row.job.rounds > 0 {
		t.outcome.Took = max(0, time.Since(t.over).Seconds())
	}
	return nil
}

func each(all []said, f func(rank int, s *said) bool) bool {
	for rank := range all {
		if !f(rank, &all[rank]) {
			return false
		}
	}
	return true
}

func failed(all []said) bool {
	return slices.ContainsFunc(all, func(s said) bool { return s.failed != nil })
}

// until waits for what ranks say. After the deadline they hang.
func (t *trial) until(what string, deadline time.Time, done func(all []said) bool) error {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	for {
		is := false
		var unfinished []int
		t.ranks.look(func(all []said) {
			if is = done(all); !is {
				for rank := range all {
					if all[rank].failed == nil && t.row.mustReport(rank) {
						unfinished = append(unfinished, rank)
					}
				}
			}
		})
		if is {
			return nil
		}
		select {
		case <-t.ranks.news:
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-late.C:
			t.report("ranks %v have not %s", unfinished, what)
			return errHang
		}
	}
}

// end ends the job and says what was not as it should be.
func (t *trial) end(hung error, cancel context.CancelCauseFunc) {
	gone := make(chan struct{})
	if hung == nil {
		for _, rank := range t.row.Fails { // one that is stopped, or that nobody reaches
			_ = t.run.Signal(rank, syscall.SIGKILL)
		}
		go func() {
			defer close(gone)
			if err := t.ended(); err != nil {
				t.report("%v", err)
			}
		}()
		select {
		case <-gone:
		case <-time.After(t.watched):
			t.report("some processes did not end")
			cancel(errHang)
			<-gone
		}
	} else {
		cancel(errHang)
		_ = t.ended()
	}
	t.compare(hung)
}
