package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
)

// soakCommand is the command line of `mcast-lab sim soak`.
type soakCommand struct {
	Multicast  bool          `xor:"which" help:"Only Allgather and Broadcast by multicast."`
	Inc        bool          `xor:"which" help:"Only the in-network Reduce-Scatter."`
	For        time.Duration `name:"seconds" placeholder:"TIME" help:"How long to search, in all, such as 30 or 10m. Default: 60s, unless another limit is given."`
	Operations int           `placeholder:"n" help:"Operations of each protocol to run and check."`
	First      uint64        `default:"1" placeholder:"seed" help:"Seed of the first scenario; the others follow. Default: ${default}."`
	Seeds      uint64        `placeholder:"n" help:"Scenarios of each protocol to run."`
	Replay     *string       `placeholder:"JSON" help:"Run this scenario, as a failure prints it, with --multicast (the default) or --inc."`
	Verbose    bool          `short:"v" help:"Describe every scenario."`
}

// searcher is a kind of scenario.
type searcher interface {
	Name() string
	Soak(l search.Limits, seen func(*search.Tally, *search.Outcome)) (search.Tally, *search.Failure, error)
	Replay(text string) (search.Outcome, error)
}

// shrinkBudget bounds the search for the smallest scenario of a failure.
var shrinkBudget = search.Budget{Runs: 10_000, Time: time.Minute}

// Run searches. It returns an error if anything fails.
func (c *soakCommand) Run() error {
	if c.For < 0 || c.Operations < 0 {
		return config.Mistakef("--seconds and --operations must not be negative")
	}
	if c.Replay != nil {
		return c.replay()
	}
	kinds := []searcher{search.Multicast, search.InNetwork}
	switch {
	case c.Multicast:
		kinds = kinds[:1]
	case c.Inc:
		kinds = kinds[1:]
	}
	l := search.Limits{First: c.First, Seeds: c.Seeds, Operations: c.Operations, Shrink: shrinkBudget}
	if c.For == 0 && c.Operations == 0 && c.Seeds == 0 {
		c.For = time.Minute
	}
	l.Time = c.For / time.Duration(len(kinds))
	var failed error
	for _, k := range kinds {
		seen, end := c.progress(k.Name(), l)
		t, failure, err := k.Soak(l, seen)
		end()
		fmt.Printf("%s: %v\n", k.Name(), &t)
		if failure != nil {
			fmt.Println(failure)
			err = fmt.Errorf("seed %d of %s fails", failure.Seed, k.Name())
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// replay runs the scenario that was given.
func (c *soakCommand) replay() error {
	k := searcher(search.Multicast)
	if c.Inc {
		k = search.InNetwork
	}
	o, err := k.Replay(*c.Replay)
	if err != nil {
		return config.Mistakef("--replay: %w", err)
	}
	fmt.Println(o.Text())
	return o.Err
}

// progressEvery is the time between two lines of progress.
const progressEvery = 10 * time.Second

// progress returns what shows how far a soak is: a bar on a terminal, else a
// line on stderr now and then; with --verbose each scenario on stdout. end removes the bar.
func (c *soakCommand) progress(name string, l search.Limits) (seen func(*search.Tally, *search.Outcome), end func()) {
	b := newBar(name)
	next := progressEvery
	return func(t *search.Tally, o *search.Outcome) {
		switch {
		case c.Verbose:
			fmt.Println(o.Text())
		case b.ProgressBar != nil && l.Operations > 0:
			b.set(min(t.Ops, l.Operations), l.Operations)
		case b.ProgressBar != nil && l.Seeds > 0:
			b.set(int(t.Seeds), int(l.Seeds))
		case b.ProgressBar != nil:
			b.set(int(min(t.Elapsed, l.Time).Milliseconds()), int(l.Time.Milliseconds()))
		case t.Elapsed >= next:
			next = t.Elapsed + progressEvery
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, t)
		}
	}, b.end
}
