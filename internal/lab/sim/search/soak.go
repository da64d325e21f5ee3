package search

import (
	"fmt"
	"math"
	"runtime"
	"time"
)

// Limits bound a soak; it ends at the first one that is reached. A limit of 0 does not count.
type Limits struct {
	First      uint64 // seed; the others follow
	Seeds      uint64
	Operations int
	Time       time.Duration
	Shrink     Budget // for what fails
}

// Tally is what a soak has come to so far.
type Tally struct {
	Seeds         uint64
	Ops, Ranks    int // operations, and ranks that completed them
	Events, Bytes int
	Hash          uint64 // of all runs: depends on the seeds alone
	Elapsed       time.Duration
}

// String gives the counts and rates.
func (t *Tally) String() string {
	rate := func(n int) float64 { return float64(n) / max(t.Elapsed.Seconds(), 1e-9) }
	return fmt.Sprintf("%d seeds, %d operations (%d over all ranks), %d MB checked in %.1f s: %.0f operations/s, %.0f "+
		"events/s, hash %016x",
		t.Seeds, t.Ops, t.Ranks, t.Bytes>>20, t.Elapsed.Seconds(), rate(t.Ops), rate(t.Events), t.Hash)
}

// Failure is a seed that fails, and the smallest scenario found that still does.
type Failure struct {
	Seed    uint64
	Outcome Outcome
	Shrunk  Shrunk
	Flags   string // of the command that chooses the kind
}

// String tells what fails and how to run it again.
func (f *Failure) String() string {
	s := fmt.Sprintf("seed %d FAILED: %v\n  replay: mcast-lab sim soak%s --first %d --seeds 1 --verbose", f.Seed,
		f.Outcome.Err, f.Flags, f.Seed)
	if f.Shrunk.JSON != "" {
		as := "the smallest that fails"
		if f.Shrunk.Spent {
			as = "the smallest found that fails"
		}
		s += fmt.Sprintf("\n  %s, after %d runs: %v\n  replay: mcast-lab sim soak%s --replay '%s'",
			as, f.Shrunk.Runs, f.Shrunk.Outcome.Err, f.Flags, f.Shrunk.JSON)
	}
	return s
}

// endless is how long a seed may take, which is a matter of milliseconds.
const endless = 2 * time.Minute

// Soak runs the scenarios of one seed after another on all processors until a limit is reached or
// one fails, which it shrinks. seen, which may be nil, is told of each in turn. The error is about
// a run that does not end.
func (k *Kind[S]) Soak(l Limits, seen func(t *Tally, o *Outcome)) (Tally, *Failure, error) {
	var t Tally
	var failed *Failure
	start := time.Now()
	seeds := l.Seeds
	if seeds == 0 {
		seeds = math.MaxUint64 - l.First
	}
	stuck := inOrder(l.First, seeds, k.seed, func(seed uint64, o Outcome) bool {
		t.Seeds++
		t.Ops += o.Ops
		t.Ranks += o.Ranks
		t.Events += o.Events
		t.Bytes += o.Bytes
		t.Hash = (t.Hash ^ o.Hash) * 0x9e3779b97f4a7c15
		t.Elapsed = time.Since(start)
		if seen != nil {
			seen(&t, &o)
		}
		if o.Err != nil {
			failed = &Failure{Seed: seed, Outcome: o, Flags: k.Flags}
			return false
		}
		return (l.Operations == 0 || t.Ops < l.Operations) && (l.Time == 0 || t.Elapsed < l.Time)
	})
	if stuck != nil || failed == nil {
		return t, nil, stuck
	}
	var err error
	failed.Shrunk, err = k.Shrink(k.Random(failed.Seed), l.Shrink)
	return t, failed, err
}

// inOrder calls run with n seeds from first on, as many at a time as there are processors, and book
// with the results in the order of the seeds until it returns false. It returns an error if a run
// does not end.
func inOrder[R any](first, n uint64, run func(seed uint64) R, book func(seed uint64, r R) bool) error {
	workers := runtime.GOMAXPROCS(0)
	under := make(chan chan R, 64*workers) // results to come, in order
	running := make(chan struct{}, workers)
	stop := make(chan struct{})
	go func() {
		defer close(under)
		for i := range n {
			result := make(chan R, 1)
			select {
			case <-stop:
				return
			case under <- result:
			}
			running <- struct{}{}
			go func() {
				result <- run(first + i)
				<-running
			}()
		}
	}()
	defer close(stop)
	limit := time.NewTimer(endless)
	defer limit.Stop()
	seed := first
	for result := range under {
		limit.Reset(endless)
		select {
		case r := <-result:
			if !book(seed, r) {
				return nil
			}
		case <-limit.C:
			return fmt.Errorf("seed %d runs for %v and does not end", seed, endless)
		}
		seed++
	}
	return nil
}
