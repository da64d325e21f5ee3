package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestChosenRanks: of a process all ranks of its groups are chosen, since ranks are compared with each other.
func TestChosenRanks(t *testing.T) {
	all := []watch.Rank{
		{PID: 1, Run: "a", Live: monitor.Live{Group: "cafe", Info: monitor.Info{Rank: 0}}},
		{PID: 2, Run: "a", Live: monitor.Live{Group: "cafe", Info: monitor.Info{Rank: 1}}},
		{PID: 2, Run: "a", Live: monitor.Live{Group: "beef", Info: monitor.Info{Rank: 0}}},
		{PID: 3, Run: "b", Live: monitor.Live{Group: "cab0", Info: monitor.Info{Rank: 0}}},
	}
	for want, f := range map[string]rankFlags{
		"cafe0 cafe1 beef0 cab00": {},
		"cab00":                   {OfRun: "b"},
		"cafe0 cafe1 cab00":       {Group: "ca"},
		"cafe0 cafe1":             {PID: 1},
		"cafe0 cafe1 beef0":       {PID: 2},
		"beef0":                   {PID: 2, Group: "b"},
		"":                        {PID: 7},
	} {
		ranks, errs := f.among(func() ([]watch.Rank, []error) { return all, []error{errors.New("one does not answer")} })()
		require.Len(t, errs, 1)
		got := ""
		for i := range ranks {
			if i > 0 {
				got += " "
			}
			got += ranks[i].Group + fmt.Sprint(ranks[i].Info.Rank)
		}
		require.Equal(t, want, got)
	}
}

func TestRanksOfAUser(t *testing.T) {
	f := rankFlags{User: strconv.Itoa(os.Geteuid())}
	require.NoError(t, f.AfterApply())
	require.Equal(t, live.Directory(os.Geteuid()), f.Directory)
	require.ErrorContains(t, f.AfterApply(), "--user and --directory are not allowed together")
	f = rankFlags{User: "nobody-of-this-name"}
	require.ErrorContains(t, f.AfterApply(), "--user=nobody-of-this-name: user: unknown user nobody-of-this-name")
}
