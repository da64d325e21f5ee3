package main

import (
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestExplainOfHosts: two looks at the pages of hosts make an interval, and the verdict is about it.
func TestExplainOfHosts(t *testing.T) {
	var looks atomic.Int64
	server := httptest.NewServer(watch.Serve(func() ([]watch.Rank, []error) {
		n := time.Duration(looks.Add(1))
		var ranks []watch.Rank
		for r := range 2 {
			ranks = append(ranks, watch.Rank{
				PID: r, At: n * time.Second, Host: "node\x1b7",
				Place: &hoststat.Host{Throttled: n * time.Duration(r) * time.Second / 2},
				Live:  monitor.Live{Group: "abc", Info: monitor.Info{Rank: r, Size: 3, Fabric: "udp"}},
			})
		}
		return ranks, nil
	}))
	defer server.Close()
	c := explainCommand{For: time.Second, Hosts: []string{strings.TrimPrefix(server.URL, "http://")}}
	report, err := c.explain(t.Context())
	require.NoError(t, err)
	require.True(t, report.Found())
	text := strings.Join(report.Lines(), "\n")
	require.Contains(t, text, "group abc: 2 of 3 ranks for 1s, fabric udp")
	require.Contains(t, text, "Ranks that were not looked at: 1.")
	require.Contains(t, text, "\nhost: cpu-quota, rank 1\n")
	require.Contains(t, text, "\n  - its threads were throttled for 0.50 s of a second")

	for want, c := range map[string]explainCommand{
		"--seconds=500ms is not allowed: want 1s or more": {For: 500 * time.Millisecond},
		"--hosts and --directory or --user are not allowed together": {
			For: time.Second, Hosts: []string{"a"}, rankFlags: rankFlags{watchFlags: watchFlags{Directory: "/tmp"}},
		},
		"--hosts and --job are not allowed together": {For: time.Second, Hosts: []string{"a"}, Job: true},
		"no rank was there: none of this user runs ": {
			For: time.Second, rankFlags: rankFlags{watchFlags: watchFlags{Directory: t.TempDir()}},
		},
	} {
		_, err := c.explain(t.Context())
		require.ErrorContains(t, err, want)
	}
}

// TestExplainOfRanksThatEnd: what was there and is gone is not what was never there.
func TestExplainOfRanksThatEnd(t *testing.T) {
	for want, there := range map[string][2]int{
		"group abc: 2 ranks were there, and have ended meanwhile: their log says why": {2, 0},
		"2 ranks have come meanwhile: look again":                                     {0, 2},
		"no rank was there": {0, 0},
	} {
		looks := 0
		server := httptest.NewServer(watch.Serve(func() ([]watch.Rank, []error) {
			ranks := make([]watch.Rank, there[min(looks, 1)])
			for r := range ranks {
				ranks[r] = watch.Rank{PID: r + 1, Live: monitor.Live{Group: "abc", Info: monitor.Info{Rank: r, Size: 2}}}
			}
			looks++
			return ranks, nil
		}))
		c := explainCommand{For: time.Second, Hosts: []string{strings.TrimPrefix(server.URL, "http://")}}
		_, err := c.explain(t.Context())
		server.Close()
		require.ErrorContains(t, err, want)
	}
}
