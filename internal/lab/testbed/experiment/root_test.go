package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	systest.RemovePrograms()
	os.Exit(code)
}

// build returns the paths of the programs, for tests that need root.
func build(t *testing.T) programs.Paths {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	folder, err := systest.Programs()
	require.NoError(t, err)
	return programs.In(folder)
}

// requireNoBed says that this process has left no testbed.
func requireNoBed(t *testing.T) {
	t.Helper()
	names, err := testbed.List()
	require.NoError(t, err)
	for _, name := range names {
		require.NotRegexp(t, fmt.Sprintf(`^experiment-.*-%d$`, os.Getpid()), name)
	}
}

// The smallest experiment from end to end: its files, its text, and that it leaves nothing running.
func TestExperiment(t *testing.T) {
	var text bytes.Buffer
	o := Options{Dir: t.TempDir(), Hosts: []int{2}, Rates: []float64{500e6}, Bytes: []int{64 << 10}, Rounds: 2,
		Peers: []string{ours, ring}, TCP: "reno",
		Programs: build(t), Repository: "../../../..", Text: &text}
	e, err := Find([]string{"allgather"})
	require.NoError(t, err)
	require.NoError(t, e[0].Run(t.Context(), o))
	requireNoBed(t)
	requireDrawn(t, filepath.Join(o.Dir, "allgather-500mbit.svg"))
	require.Contains(t, text.String(), "Allgather on 2 hosts")
	file, err := os.ReadFile(filepath.Join(o.Dir, "allgather.ndjson"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	require.Len(t, lines, 2)
	for i, peer := range []string{ours, ring} {
		var row allgatherRow
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &row))
		require.Equal(t, peer, row.Peer)
		require.Equal(t, 64<<10, row.Bytes)
		require.Equal(t, Setting{"allgather", 2, 1, 1, 0, 500e6, 9000, 125_000, 0, "reno", row.Stamp}, row.Setting)
		require.Regexp(t, `^\d{4}-\d\d-\d\d$`, row.Date)
		require.NotEmpty(t, row.CPU)
		require.NotEmpty(t, row.Kernel)
		require.Len(t, row.RoundsUS, 2)
		require.Positive(t, row.TimeUS)
		require.Positive(t, row.Fraction)
		require.NotZero(t, row.SentRatio, "counted; on a busy machine some is sent twice")
		require.Empty(t, row.Ended)
	}
}

// Hosts of several ranks: every way is measured, and of ours is counted what crosses a host's link.
func TestNodesExperiment(t *testing.T) {
	var text bytes.Buffer
	o := Options{Dir: t.TempDir(), Hosts: []int{2}, Ranks: []int{2}, Rates: []float64{500e6}, Bytes: []int{1 << 20},
		Rounds: 1, Peers: []string{ours, ring},
		Programs: build(t), Repository: "../../../..", Text: &text}
	e, err := Find([]string{"nodes"})
	require.NoError(t, err)
	require.NoError(t, e[0].Run(t.Context(), o))
	requireNoBed(t)
	require.Contains(t, text.String(), "2 x 2")
	file, err := os.ReadFile(filepath.Join(o.Dir, "nodes.ndjson"))
	require.NoError(t, err)
	var rows []nodesRow
	for line := range strings.Lines(string(file)) {
		var row nodesRow
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if row.Collective != "" { // no goal
			rows = append(rows, row)
		}
	}
	for _, w := range []way{nodesWay, nodesSwitchWay, flatWay, flatSwitchWay, ringWay} {
		for _, collective := range []string{"allgather", "reducescatter", "overlap"} {
			i := findRow(rows, w, collective, 1<<20)
			require.GreaterOrEqual(t, i, 0, "%s by %s", collective, w)
			r := rows[i]
			require.Equal(t, 2, r.PerHost)
			require.Positive(t, r.TimeUS)
			require.Positive(t, r.CPU)
			require.Positive(t, r.IdealUS)
			if collective == "overlap" {
				require.Positive(t, r.S)
			} else if w == nodesWay {
				// What joining takes differs a little from run to run, and on a busy machine some is sent twice.
				require.Greater(t, r.Sent, 0.8*r.LawSent)
				require.Greater(t, r.Received, 0.8*r.LawReceived)
				require.Equal(t, 2, r.Nodes)
			}
		}
	}
	require.Equal(t, "switch", rows[findRow(rows, nodesSwitchWay, "reducescatter", 1<<20)].Algorithm)
}

// A peer that does not end in time is a result for a work that may fail, and leaves nothing behind.
func TestLate(t *testing.T) {
	l, err := newLab(t.Context(), "late", Options{Rounds: 3, Limit: 300 * time.Millisecond, Programs: build(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	tb, err := l.bed(testbed.Spec{Hosts: 2, Rate: 1e6})
	require.NoError(t, err)
	w := work{peer: ours, collective: "allgather", bytes: []int{16 << 20}, iters: 1, warmup: 1, loss: 0.25, mayFail: true}
	rows, err := l.compare(tb, w)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "did not finish in 300ms", rows[0].Ended)
	require.Empty(t, rows[0].RoundsUS)
	require.Equal(t, 0.25, rows[0].Loss)
	faults, err := tb.Faults()
	require.NoError(t, err)
	for _, f := range faults[:len(tb.Hosts())] {
		require.Equal(t, testbed.Loss{Share: 0.25}, f.Loss)
	}
	living, err := tb.Processes()
	require.NoError(t, err)
	require.Empty(t, living)
	w.mayFail = false
	_, err = l.compare(tb, w)
	require.ErrorIs(t, err, errLate)
}

// An experiment that is told to end removes its testbed, and shows and keeps its measurements.
// Files of an earlier one stay as they were.
func TestInterrupted(t *testing.T) {
	stop := errors.New("stop")
	for round, c := range []struct{ rows, lines int }{{0, 0}, {1, 2}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var text bytes.Buffer
		o := Options{
			Dir: t.TempDir(), Programs: build(t), Repository: "../../../..", Hosts: []int{2}, Rates: []float64{500e6},
			Bytes: []int{64 << 10}, Peers: []string{ours}, Text: &text,
		}
		whole := filepath.Join(o.Dir, "unicast.ndjson")
		require.NoError(t, os.WriteFile(whole, []byte("{}\n"), 0o600))
		o.Step = func(what string) {
			if strings.Contains(what, fmt.Sprintf("(run %d of 10", 2*round+1)) { // two collectives a round
				cancel(stop)
			}
		}
		e, err := Find([]string{"unicast"})
		require.NoError(t, err)
		err = e[0].Run(ctx, o)
		require.ErrorIs(t, err, stop)
		var ended *EndedError
		require.ErrorAs(t, err, &ended)
		requireNoBed(t)
		before, err := os.ReadFile(whole)
		require.NoError(t, err)
		require.Equal(t, "{}\n", string(before))
		if c.rows == 0 {
			require.Empty(t, ended.Path)
			continue
		}
		kept, err := os.ReadFile(filepath.Join(o.Dir, "unicast.partial.ndjson"))
		require.NoError(t, err)
		require.Equal(t, c.lines, strings.Count(string(kept), `"reading":{`), "as they came")
		require.Equal(t, c.lines, strings.Count(string(kept), `"rounds_us":[`), "and once a row")
		require.Contains(t, text.String(), "the table shows what was measured")
		require.Contains(t, ended.Error(), "its measurements are in "+ended.Path)
	}
}

// Beside an aggressor that runs until it is told to end, a victim is measured.
func TestBeside(t *testing.T) {
	l, err := newLab(t.Context(), "beside", Options{Rounds: 1, Programs: build(t), Dir: t.TempDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	tb, err := l.bed(testbed.Spec{Hosts: 2, Rate: 500e6})
	require.NoError(t, err)
	all := kinds(64<<10, nil)[:1]
	rows, err := l.beside(tb, all, 0, 0, nil)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "allgather", rows[0].Aggressor)
	require.Positive(t, rows[0].Rate)
	living, err := tb.Processes()
	require.NoError(t, err)
	require.Empty(t, living, "the aggressor has ended")
	_, err = l.aggress(tb, work{peer: ours, collective: "nothing", bytes: []int{1 << 20}})
	require.ErrorContains(t, err, "ended too early")
}
