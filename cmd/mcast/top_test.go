package main

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestTopShowsRates: of one look and the next, also of ranks that came between the two.
func TestTopShowsRates(t *testing.T) {
	c := topCommand{Interval: time.Millisecond, Once: true}
	looks := 0
	look := func() ([]watch.Rank, []error) {
		looks++
		r := watch.Rank{PID: 1, At: time.Duration(looks) * time.Second, Live: monitor.Live{
			Group: "abc", Info: monitor.Info{Size: 1}, Counters: map[string]uint64{"gather_ops": uint64(70 * looks)},
		}}
		return []watch.Rank{r}, []error{errors.New("rank of another")}
	}
	var text string
	require.NoError(t, c.watch(t.Context(), look, func(all []watch.Activity, errs []error) error {
		require.Len(t, all, 1)
		require.InDelta(t, 70, all[0].Gather.Ops, 1e-9)
		text = strings.Join(c.text(all, errs), "\n")
		return nil
	}))
	require.Equal(t, 2, looks)
	require.Contains(t, text, "1 rank(s), rates over 1ms")
	require.Contains(t, text, "group abc: 1 of 1 ranks are here")
	require.Contains(t, text, "does not answer: rank of another")
	require.Contains(t, strings.Join(c.text(nil, nil), "\n"),
		"No rank of this user runs here, or none publishes (MCAST_METRICS).")
}

// TestTopDoesNotObey: what processes of other users publish does nothing to root's terminal.
func TestTopDoesNotObey(t *testing.T) {
	c := topCommand{}
	r := watch.Activity{Group: "a\x1b[2Jb", Run: "c\nd", Failed: "e\u009b2Jf"}
	for _, line := range c.text([]watch.Activity{r}, []error{errors.New("/tmp/\x1b]0;x\a.sock")}) {
		require.Equal(t, -1, strings.IndexFunc(line, unicode.IsControl), "%q", line)
	}
}
