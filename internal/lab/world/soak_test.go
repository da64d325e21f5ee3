package world

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
)

var (
	first      = flag.Uint64("first", 1, "first seed of TestSoak")
	seeds      = flag.Uint64("seeds", 60, "seeds of TestSoak; 0: as many as the other limits allow")
	operations = flag.Int("operations", 0, "operations after which TestSoak ends; 0: no bound")
	replay     = flag.String("replay", "", "scenario, as JSON, that TestSoak runs instead")
	verbose    = flag.Bool("verbose", false, "say what happens in each run")
)

// TestSoak runs random scenarios and wants every operation to end as it should.
func TestSoak(t *testing.T) {
	k := Groups(t)
	if *replay != "" {
		o, err := k.Replay(*replay)
		require.NoError(t, err)
		fmt.Println(o.Text())
		require.NoError(t, o.Err)
		return
	}
	limits := search.Limits{First: *first, Seeds: *seeds, Operations: *operations, Shrink: search.Budget{Runs: 500, Time: time.Minute}}
	tally, failure, err := k.Soak(limits, func(_ *search.Tally, o *search.Outcome) {
		if *verbose {
			fmt.Println(o.Text())
		}
	})
	fmt.Fprintln(os.Stderr, tally.String())
	require.NoError(t, err)
	if failure != nil {
		t.Log(failure.Outcome.Text())
		t.Fatalf("seed %d fails: %v\n  again: go test ./internal/lab/world -run TestSoak -first %d -seeds 1\n  smallest: %v\n  again: go test ./internal/lab/world -run TestSoak -replay '%s'",
			failure.Seed, failure.Outcome.Err, failure.Seed, failure.Shrunk.Outcome.Err, failure.Shrunk.JSON)
	}
}
