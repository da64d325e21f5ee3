package watch

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestJobs: a rank of this host answers for one of another, a third one is silent and is not waited for again, and a
// job that ends between two looks is no error.
func TestJobs(t *testing.T) {
	const name = "abc"
	here := monitor.Live{Group: name, Info: monitor.Info{Rank: 0, Size: 3}}
	there := monitor.Live{Group: name, Info: monitor.Info{Rank: 1, Size: 3}}
	page := func(of monitor.Live, pid int, host string) json.RawMessage {
		p := live.Of(of)
		p.PID = pid // as a PID namespace has it
		text, err := json.Marshal(monitor.Snapshot{Process: p, Host: host})
		require.NoError(t, err)
		return text
	}
	var skipped [][]int
	job := &live.Job{Group: name, Ask: func(skip []int) any {
		skipped = append(skipped, skip)
		return monitor.Asked{
			Ranks: []json.RawMessage{page(here, 7, "node0"), page(there, 9, "node1"), json.RawMessage("[]")}, Silent: []int{2},
		}
	}}
	dir := systest.ShortDir(t)
	withdraw, err := live.Publish(dir, func() any { return here }, job)
	require.NoError(t, err)
	look := Jobs([]string{dir})
	for range 2 {
		ranks, errs := look()
		require.Len(t, ranks, 2)
		require.Equal(t, os.Getpid(), ranks[0].PID)
		require.True(t, ranks[0].Here)
		require.Equal(t, 9, ranks[1].PID)
		require.False(t, ranks[1].Here)
		require.Equal(t, "node1", ranks[1].Host)
		require.Len(t, errs, 2)
		require.ErrorContains(t, errs[0], "none of this version's")
		require.Equal(t, &SilentError{name, 2}, errs[1])
	}
	require.Equal(t, [][]int{nil, {2}}, skipped)
	withdraw()
	ranks, errs := look()
	require.Empty(t, ranks)
	require.Empty(t, errs)

	withdraw, err = live.Publish(dir, func() any { return here }, nil) // as one that answers for no others
	require.NoError(t, err)
	_, errs = Jobs([]string{dir})()
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "does not answer for other ranks")
	withdraw()
}
