package world

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var (
	first = flag.Uint64("first", 1, "first seed of TestSoak")
	seeds = flag.Uint64("seeds", systest.Draw[uint64](15, 60),
		"seeds of TestSoak; 0: as many as the other limits allow")
	operations = flag.Int("operations", 0, "operations after which TestSoak ends; 0: no bound")
	shrink     = flag.Int("shrink", 500, "runs of TestSoak to make what fails smaller")
	state      = flag.String("state", "", "file that keeps how far TestSoak has come, so that the next one goes on there")
	replay     = flag.String("replay", "", "scenario, as JSON, that TestSoak runs instead")
	switched   = flag.Bool("switch", false, "let TestSoak draw scenarios with aggregation nodes")
	begin      = flag.Bool("begin", false, "say which seed begins, for what ends the program")
	verbose    = flag.Bool("verbose", false, "say what happens in each run")
)

// TestSoak runs random scenarios and wants every operation to end as it should.
func TestSoak(t *testing.T) {
	announce = *begin
	k := Groups(t)
	if *switched {
		k = Switches(t)
	}
	if *replay != "" {
		o, err := k.Replay(*replay)
		require.NoError(t, err)
		fmt.Println(o.Text())
		require.NoError(t, o.Err)
		return
	}
	so := progress{Next: *first}
	so.load(t)
	limits := search.Limits{
		First: so.Next, Seeds: *seeds, Operations: *operations, Shrink: search.Budget{Runs: *shrink, Time: time.Minute},
	}
	tally, failure, err := k.Soak(limits, func(t *search.Tally, o *search.Outcome) {
		if *verbose {
			fmt.Println(o.Text())
		}
		if t.Seeds%saveEvery == 0 && o.Err == nil {
			now := so.plus(t)
			_ = now.save() // the last one tells
		}
	})
	fmt.Fprintln(os.Stderr, tally.String())
	require.NoError(t, err)
	if failure != nil {
		tally.Seeds-- // the next run begins with the seed that fails
	}
	so = so.plus(&tally)
	require.NoError(t, so.save())
	if *state != "" {
		fmt.Fprintf(os.Stderr, "in all runs of %s: %d operations (%d over all ranks); next seed %d\n", *state, so.Operations,
			so.Calls, so.Next)
	}
	if failure != nil {
		t.Log(failure.Outcome.Text())
		t.Fatalf("seed %d fails: %v\n  again: go test ./internal/lab/world -run TestSoak%s -first %d -seeds 1\n  smallest: "+
			"%v\n  again: go test ./internal/lab/world -run TestSoak -replay '%s'",
			failure.Seed, failure.Outcome.Err, kindFlag(), failure.Seed, failure.Shrunk.Outcome.Err, failure.Shrunk.JSON)
	}
}

// kindFlag chooses the kind of scenarios that were drawn.
func kindFlag() string {
	if *switched {
		return " -switch"
	}
	return ""
}

// progress is how far all runs together have come.
type progress struct {
	Next       uint64 // seed
	Operations int    // of groups
	Calls      int    // the same, once a rank
}

func (p *progress) load(t *testing.T) {
	if *state == "" {
		return
	}
	text, err := os.ReadFile(*state)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, p), "%s", *state)
}

// saveEvery is after how many seeds a run that may be killed notes how far it has come.
const saveEvery = 200

func (p *progress) plus(t *search.Tally) progress {
	return progress{p.Next + t.Seeds, p.Operations + t.Ops, p.Calls + t.Ranks}
}

func (p *progress) save() error {
	if *state == "" {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*state), 0o755); err != nil {
		return err
	}
	return os.WriteFile(*state, text, 0o644)
}
