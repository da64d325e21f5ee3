package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Run is a job that has been started.
type Run struct {
	job     Job
	id      string // of no other run, and in the environment of all processes of this one
	tb      *testbed.Testbed
	hosts   []testbed.Host // those of the job, in its order
	lease   *lease
	logs    string
	starter *starter
	ranks   []*process
	done    chan struct{}
	err     error // once done is closed
}

// DeadRankError says which rank ended a run, and how: not with exit status 0.
type DeadRankError struct {
	Rank    int
	Host    string // its namespace
	Process int    // its id
	State   *os.ProcessState
	Tail    string // the last lines of its log, each indented on a line of its own
}

func (e *DeadRankError) Error() string {
	return fmt.Sprintf("rank %d on %s (process %d) died: %v%s", e.Rank, e.Host, e.Process, e.State, e.Tail)
}

var started atomic.Uint64 // runs of this process

// Start starts the ranks of a job on a testbed. The end of ctx ends them.
func Start(ctx context.Context, tb *testbed.Testbed, job Job) (*Run, error) {
	if err := job.check(tb); err != nil {
		return nil, err
	}
	r := &Run{job: job, tb: tb, done: make(chan struct{}),
		id: fmt.Sprintf("%s-%d-%d-%d", tb.Name(), os.Getpid(), started.Add(1), time.Now().UnixNano())}
	for _, h := range job.Hosts {
		r.hosts = append(r.hosts, tb.Hosts()[h])
	}
	if err := r.start(ctx); err != nil {
		stop(r.ranks...)
		return nil, errors.Join(err, r.clean())
	}
	go r.supervise(ctx)
	return r, nil
}

func (r *Run) start(ctx context.Context) (err error) {
	if r.starter, err = newStarter(r.tb); err != nil {
		return err
	}
	if r.logs = r.job.Logs; r.logs == "" {
		r.logs, err = os.MkdirTemp(r.tb.Dir(), "logs-")
	} else {
		err = os.MkdirAll(r.logs, 0o755)
	}
	if err != nil {
		return err
	}
	groups, err := r.job.subgroups()
	if err != nil {
		return err
	}
	if r.lease, err = takeLease(r.tb, r.id, r.job.Group, groups); err != nil {
		return err
	}
	if r.job.MPI {
		env, err := r.mpiEnv()
		if err != nil {
			return err
		}
		return r.startRank(0, env)
	}
	for rank := range r.job.size() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.startRank(rank, r.rankEnv(rank)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) startRank(rank int, env []string) error {
	command := r.job.Command
	if core, one := r.job.Cores[rank]; one {
		command = append([]string{"taskset", "-c", strconv.Itoa(core)}, command...)
	}
	if d := r.job.Late[rank]; d > 0 {
		command = append([]string{"sh", "-c", fmt.Sprintf("sleep %f && exec \"$@\"", d.Seconds()), "sh"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = r.job.Dir, env
	if r.job.Output != nil {
		cmd.Stdout, cmd.Stderr = r.job.Output(rank)
	}
	p, err := r.starter.startProcess(r.host(rank).Namespace, r.Log(rank), cmd)
	if err != nil {
		return fmt.Errorf("rank %d: %w", rank, err)
	}
	r.ranks = append(r.ranks, p)
	return nil
}

// supervise waits for all ranks. The first one that fails, unless the others are to keep going, or
// the end of ctx, ends the others.
func (r *Run) supervise(ctx context.Context) {
	defer close(r.done)
	ended := make(chan int, len(r.ranks))
	for i, p := range r.ranks {
		go func() {
			<-p.done
			ended <- i
		}()
	}
wait:
	for range r.ranks {
		select {
		case i := <-ended:
			if r.err == nil && !r.ranks[i].cmd.ProcessState.Success() {
				r.err = r.died(i)
			}
			if r.err != nil && !r.job.KeepGoing {
				break wait
			}
		case <-ctx.Done():
			r.err = context.Cause(ctx)
			break wait
		}
	}
	stop(r.ranks...)
	for i, p := range r.ranks {
		if r.err == nil && p.output != nil {
			r.err = fmt.Errorf("rank %d: its output: %w", i, p.output)
		}
	}
	r.err = errors.Join(r.err, r.clean())
}

// died makes the error of a rank that failed. If it exited by itself, and others were killed
// by then, it is of one of those: that rank did not fail because of them.
func (r *Run) died(rank int) error {
	if !r.ranks[rank].killed() {
		for i, p := range r.ranks {
			if p.killed() {
				rank = i
				break
			}
		}
	}
	p := r.ranks[rank]
	<-p.done
	if r.job.MPI {
		return fmt.Errorf("%s failed: %v%s", r.job.Command[0], p.cmd.ProcessState, p.tail())
	}
	return &DeadRankError{rank, r.host(rank).Namespace, p.cmd.Process.Pid, p.cmd.ProcessState, p.tail()}
}

// clean undoes start, once no rank lives.
func (r *Run) clean() error {
	errs := []error{sweep(r.id)}
	r.starter.close()
	for _, p := range r.ranks {
		errs = append(errs, p.log.Close())
	}
	if r.job.Logs == "" && r.logs != "" {
		errs = append(errs, os.RemoveAll(r.logs))
	}
	if r.lease != nil {
		errs = append(errs, r.lease.release())
	}
	return errors.Join(errs...)
}

// Wait returns when no process of the run is left. The error is a *DeadRankError (of mpirun, what
// it said), or the cause of the end of Start's ctx; it is nil if all ranks exited with status 0.
func (r *Run) Wait() error {
	<-r.done
	return r.err
}

// Signal sends a signal to a rank and the processes of its group.
func (r *Run) Signal(rank int, sig syscall.Signal) error {
	if rank < 0 || rank >= len(r.ranks) {
		return fmt.Errorf("rank %d: want 0 to %d", rank, len(r.ranks)-1)
	}
	if err := r.ranks[rank].signal(sig); err != nil {
		return fmt.Errorf("rank %d: %w", rank, err)
	}
	return nil
}

// Process returns the id of a rank's process, which is the leader of its process group.
func (r *Run) Process(rank int) int { return r.ranks[rank].cmd.Process.Pid }

// Log returns the path of a rank's log.
func (r *Run) Log(rank int) string { return filepath.Join(r.logs, "rank"+strconv.Itoa(rank)+".log") }
