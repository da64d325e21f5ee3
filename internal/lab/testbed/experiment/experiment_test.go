package experiment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

func TestFind(t *testing.T) {
	all, err := Find([]string{"all"})
	require.NoError(t, err)
	require.Len(t, all, len(All))
	two, err := Find([]string{"loss", "traffic"})
	require.NoError(t, err)
	require.Equal(t, "loss", two[0].Name)
	require.Equal(t, "traffic", two[1].Name)
	_, err = Find([]string{"loss", "lost"})
	require.ErrorContains(t, err, `no experiment "lost": want all, or of traffic, overlap`)
}

func TestNumbers(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	require.Zero(t, median(nil))
	require.Equal(t, 0.5, fraction(1, 2))
	require.Zero(t, fraction(1, 0), "what was not measured reaches nothing")
	require.InDelta(t, 40_000, ideal(1e6, 200e6), 1e-9) // a megabyte at 200 Mbit/s: 40 ms
	require.Equal(t, 1.0, law(2))
	require.Equal(t, 1.75, law(8))
	for ranks := 2; ranks <= 16; ranks *= 2 {
		rings, mine := idealOverlap(ring, ranks, 1<<20, 1e9), idealOverlap(ours, ranks, 1<<20, 1e9)
		require.InDelta(t, law(ranks), rings/mine, 1e-12)
	}
	require.Equal(t, 50_000, testbed.Spec{Rate: 200e6, MTU: 9000}.LinkBurst())
	require.Equal(t, 4*1514, testbed.Spec{Rate: 1e6, MTU: 1500}.LinkBurst())
}

// What the paper's network passes: each shard of 64 KiB by 188 host ports and, twice each, 12 links
// between switches.
func TestExpected(t *testing.T) {
	spec := paperTree(paperHosts)
	require.NoError(t, spec.Check())
	require.Equal(t, 12, spec.Leaves)
	require.Equal(t, 6, spec.Spines)
	shard := 64 << 10
	tree := float64((188 + 2*12) * shard)
	hop := func(crossLeaves int) float64 { return float64(2*188+4*crossLeaves) * float64(shard) / 188 }
	require.Equal(t, tree, expected(spec, ours, "broadcast", shard))
	require.Equal(t, 188*tree, expected(spec, ours, "allgather", shard))
	require.InDelta(t, 187*188*hop(12), expected(spec, ring, "allgather", shard), 1)
	require.Equal(t, float64((2*187+4*11)*shard), expected(spec, ring, "broadcast", shard))
	require.Greater(t, expected(spec, gloo, "broadcast", shard), expected(spec, ring, "broadcast", shard),
		"a tree that knows no leaves crosses more")
	small := paperTree(8)
	require.Equal(t, 1, small.Leaves)
	require.NoError(t, small.Check())
	require.Equal(t, float64(8*8*shard), expected(small, ours, "allgather", shard))
}

func TestReadings(t *testing.T) {
	found, err := readings(strings.NewReader(`a warning
{"collective":"allgather","bytes":1024,"time_us":12.5,"algorithm":"ring","wrong":0,"chunks_lost":3}
{"bytes":7}
{"collective":"reducescatter","bytes":2048,"p50_us":7.5,"wrong":0}
`))
	require.NoError(t, err)
	require.Equal(t, []reading{
		{Collective: "allgather", Bytes: 1024, TimeUS: 12.5, Algorithm: "ring", Lost: 3},
		{Collective: "reducescatter", Bytes: 2048, TimeUS: 7.5, P50US: 7.5},
	}, found)
	_, err = readings(strings.NewReader(`{"collective":"allgather","bytes":1024,"time_us":1,"wrong":2}`))
	require.EqualError(t, err, "allgather of 1024 bytes: 2 elements are wrong")
	_, err = readings(strings.NewReader(`{"collective":`))
	require.Error(t, err)
}

// written returns a lab's files after it has written them.
func written(t *testing.T, l *lab) (rows [][]byte, plots []string) {
	t.Helper()
	l.Dir = filepath.Join(t.TempDir(), "new")
	require.NoError(t, l.files())
	text, err := os.ReadFile(filepath.Join(l.Dir, l.name+".ndjson"))
	require.NoError(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		rows = append(rows, bytes.Clone(lines.Bytes()))
	}
	plots, err = filepath.Glob(filepath.Join(l.Dir, "*.svg"))
	require.NoError(t, err)
	for _, path := range plots {
		requireDrawn(t, path)
	}
	return rows, plots
}

// requireDrawn wants an SVG with text, and with a colour that is no ink: frame and grid have none.
func requireDrawn(t *testing.T, path string) {
	t.Helper()
	drawn, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(drawn, new(struct{})), path)
	_, body, _ := strings.Cut(string(drawn), "</style>")
	require.Contains(t, body, "<text", path)
	require.Regexp(t, "(fill|stroke):#", body, path)
}

func rowAt(peer, collective string, hosts, n int, us float64) Row {
	return Row{Setting: Setting{
		Experiment: "x", Hosts: hosts, Leaves: 1, Rate: 200e6, MTU: 9000, Burst: 50_000, TCP: "bbr",
		Stamp: stamp.Stamp{Date: "2026-12-31", Commit: "abc", CPU: "a CPU", Kernel: "6.1", CPUs: 2},
	}, Peer: peer, Command: "mcast bench",
		Env: []string{"A=b"}, Collective: collective, Bytes: n, Iters: 3, RoundsUS: []float64{us, us}, TimeUS: us}
}

// Rows come back from the file as they were, with goals behind them.
func TestFiles(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	want := allgatherRow{Row: rowAt(ours, "allgather", 4, 1<<20, 125_000), Fraction: 1.007, SentRatio: 1.01}
	l.row(want)
	l.goal("speed", "at least 1", "2", true)
	rows, plots := written(t, l)
	require.Empty(t, plots)
	require.Len(t, rows, 2)
	var got allgatherRow
	require.NoError(t, json.Unmarshal(rows[0], &got))
	require.Equal(t, want, got)
	var goal Goal
	require.NoError(t, json.Unmarshal(rows[1], &goal))
	require.Equal(t, Goal{"x", "speed", "at least 1", "2", true}, goal)
}

// TestSettingIsStamped: rows say when, with which commit and where.
func TestSettingIsStamped(t *testing.T) {
	l := &lab{name: "x"}
	want := stamp.Now()
	require.Equal(t, want, l.settingOn(testbed.Spec{}, 0).Stamp)
	text, err := json.Marshal(allgatherRow{Row: Row{Setting: Setting{Stamp: want}}})
	require.NoError(t, err)
	var row map[string]any
	require.NoError(t, json.Unmarshal(text, &row))
	require.Equal(t, []any{want.Date, want.Commit, want.CPU, want.Kernel},
		[]any{row["date"], row["commit"], row["cpu"], row["kernel"]})
}

// TestRowsWithoutAStamp: those of before still are rows.
func TestRowsWithoutAStamp(t *testing.T) {
	var row allgatherRow
	require.NoError(t,
		json.Unmarshal(
			[]byte(`{"experiment":"allgather","hosts":4,"tcp":"bbr","kernel":"6.1","cpus":2,"peer":"mcast","time_us":7}`), &row))
	require.Equal(t, Setting{Experiment: "allgather", Hosts: 4, TCP: "bbr", Stamp: stamp.Stamp{Kernel: "6.1", CPUs: 2}},
		row.Setting)
	require.Equal(t, 7.0, row.TimeUS)
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	l := &lab{ctx: t.Context(), name: "x", Options: Options{Text: &out}}
	l.table("Title", "peer", "ms").row("mcast", "1.5")
	l.goal("speed", "at least 2", "1", false)
	l.remark("So it is.")
	require.NoError(t, l.print("what"))
	require.Equal(t, "== x: what\nTitle\n   peer   ms\n  mcast  1.5\nspeed: 1 (want at least 2): MISSED\nSo it is.\n",
		out.String())
}

func TestAllgatherResults(t *testing.T) {
	var out bytes.Buffer
	l := &lab{ctx: t.Context(), name: "x", Options: Options{Text: &out}}
	rows := []allgatherRow{
		{Row: rowAt(ours, "allgather", 4, 4<<20, 520e3), Fraction: 0.968, SentRatio: 1.01},
		{Row: rowAt(gloo, "allgather", 4, 4<<20, 1040e3), Fraction: 0.484, SentRatio: 3.1},
		{Row: rowAt(ours, "allgather", 4, 16<<20, 2300e3), Fraction: 0.875, SentRatio: 1.04},
	}
	l.allgatherTable(l.table("t"), 200e6, rows)
	l.allgatherGoals(200e6, rows)
	require.Len(t, l.goals, 4)
	require.Equal(t, []bool{true, true, false, false},
		[]bool{l.goals[0].Met, l.goals[1].Met, l.goals[2].Met, l.goals[3].Met})
	require.Equal(t, []string{"200mbit", "4 MiB", "gloo", "1.04e+03", "0.484", "3.1", "2x"}, l.tables[0].lines[2])
	unlimited := []allgatherRow{{Row: rowAt(ours, "allgather", 4, 64<<20, 100)},
		{Row: rowAt(gloo, "allgather", 4, 64<<20, 190)}}
	l.allgatherGoals(0, unlimited)
	require.Len(t, l.goals, 5)
	require.False(t, l.goals[4].Met)
	require.Equal(t, "1.90x", l.goals[4].Got)
	l.chart("-200mbit", allgatherChart(4, 200e6, []int{4 << 20, 16 << 20}, rows))
	_, plots := written(t, l)
	require.Len(t, plots, 1)
}

func TestOverlapResults(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	var rows []overlapRow
	for _, hosts := range []int{2, 4, 16} {
		mine := idealOverlap(ours, hosts, 4<<20, 200e6) / 0.96
		for _, peer := range []string{ours, ring} {
			us := idealOverlap(peer, hosts, 4<<20, 200e6) / 0.96
			rows = append(rows,
				overlapRow{Row: rowAt(peer, "overlap", hosts, 4<<20, us), IdealUS: us * 0.96, S: us / mine, Law: law(hosts)})
		}
	}
	for _, r := range rows {
		if r.Peer == ring {
			l.overlapGoal(r)
		}
	}
	require.Len(t, l.goals, 2, "at 2 hosts nothing is gained")
	require.True(t, l.goals[0].Met)
	require.True(t, l.goals[1].Met)
	slow := rows[3]
	slow.S *= 0.94
	l.overlapGoal(slow)
	require.False(t, l.goals[2].Met)
	l.overlapCharts(200e6, rows)
	_, plots := written(t, l)
	require.Len(t, plots, 2)
}

func TestTrafficResults(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	var rows []trafficRow
	for _, hosts := range []int{8, 188} {
		for _, peer := range []string{ours, ring} {
			n := expected(paperTree(hosts), peer, "allgather", 64<<10)
			rows = append(rows, trafficRow{
				Setting: Setting{Hosts: hosts}, Peer: peer, Collective: "allgather", Bytes: 64 << 10, Ports: n, Expected: n,
			})
		}
	}
	l.trafficGoals("allgather", 188, rows)
	require.Len(t, l.goals, 1)
	require.True(t, l.goals[0].Met)
	require.Equal(t, "1.99x", l.goals[0].Got)
	require.Equal(t, "1.75x", toOurs(rows, rows[1]))
	failed := trafficRow{Setting: Setting{Hosts: 188}, Peer: gloo, Collective: "allgather", Ended: "no memory"}
	require.Equal(t, "no memory", megabytes(failed))
	l.trafficGoals("allgather", 188, append(rows, failed))
	require.False(t, l.goals[2].Met, "what did not end is no success")
	l.chart("-allgather", trafficChart("allgather", 64<<10, []int{8, 188}, rows))
	_, plots := written(t, l)
	require.Len(t, plots, 1)
}

func TestLossChart(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	var rows []lossRow
	losses := []float64{0, 0.01, 0.1}
	for _, p := range losses {
		r := rowAt(ours, "allgather", 4, 4<<20, 520e3)
		r.Loss = p
		rows = append(rows, lossRow{Row: r, Goodput: 190e6 * (1 - p)})
	}
	l.chart("", lossChart(200e6, losses, rows))
	_, plots := written(t, l)
	require.Len(t, plots, 1)
}

func TestIsolationResults(t *testing.T) {
	l := &lab{ctx: t.Context(), name: "x"}
	all := kinds(4<<20, nil)
	require.Len(t, all, 5)
	var rows []isolationRow
	for _, k := range all {
		for _, aggressor := range append([]string{""}, names(all)...) {
			rate := 95e6
			switch {
			case aggressor == "":
				rate = 190e6
			case k.name == tcpStream && aggressor == "recovery":
				rate = 60e6
			case k.name == "checkpoint" && aggressor == "allgather":
				rate = 10e6
			case k.name != "checkpoint" && aggressor == "checkpoint":
				rate = 171e6
			}
			rows = append(rows, isolationRow{
				Row: rowAt(ours, k.work.collective, 4, 4<<20, 1), Victim: k.name, Aggressor: aggressor, Rate: rate,
			})
		}
	}
	for _, k := range insiders(all) {
		require.Equal(t, []string{"--checkpoint=12582912"}, k.work.flags)
		rows = append(rows,
			isolationRow{Row: rowAt(ours, k.work.collective, 4, 4<<20, 1), Victim: k.name, Aggressor: inside, Rate: 152e6})
	}
	l.isolationResults(200e6, all, rows)
	require.Equal(t, []Goal{
		{"x", "the least that a job of ours keeps of min(alone, half the link)", "at least 75.0 %", "95.0 %", true},
		{"x", "the least that one keeps of its rate alone beside one in the background", "at least 85.0 %", "80.0 %", false},
		{"x", "the least that one in the background has of the link", "at least 2.5 %", "5.0 %", true},
		{"x", "the least that a TCP stream keeps of min(alone, half the link)", "at least 75.0 %", "60.0 %", false},
	}, l.goals)
	require.Equal(t, "Below: TCP stream beside recovery.", l.remarks[0])
	lines, plots := written(t, l)
	require.Len(t, plots, 1)
	require.Len(t, lines, 5*6+3+4)
	var row isolationRow
	require.NoError(t, json.Unmarshal(lines[1], &row))
	require.InDelta(t, 0.95, row.Kept, 1e-12)
}

func TestJobs(t *testing.T) {
	l := &lab{
		ctx: t.Context(), name: "x", absent: map[string]string{},
		Options: Options{Programs: programs.In("/opt"), Repository: "/opt/repository"},
	}
	_, err := l.job(&testbed.Testbed{}, work{peer: "nccl"})
	require.ErrorContains(t, err, `no peer "nccl": want one of mcast, ring, gloo, mpi`)
	job, err := l.job(&testbed.Testbed{}, work{peer: ring, collective: "overlap", bytes: []int{1, 2}, iters: 3, warmup: 4})
	require.NoError(t, err)
	require.Equal(t, "/opt/mcast-lab ring overlap --json --bytes=1,2 --iters=3 --warmup=4", strings.Join(job.Command, " "))
	require.Equal(t, "mcast-lab ring overlap --json --bytes=1,2 --iters=3 --warmup=4",
		l.command(work{peer: ring, collective: "overlap", bytes: []int{1, 2}, iters: 3, warmup: 4}))
	job, err = l.job(&testbed.Testbed{},
		work{peer: ours, collective: "overlap", bytes: []int{8}, iters: 1, warmup: 1, perHost: 4, flags: []string{"--exact"}})
	require.NoError(t, err)
	require.Equal(t, 4, job.PerHost)
	require.Equal(t, "/opt/mcast bench overlap --json --bytes=8 --iters=1 --warmup=1 --exact",
		strings.Join(job.Command, " "))
	job, err = l.job(&testbed.Testbed{},
		work{peer: mpi, collective: "overlap", bytes: []int{8, 16}, iters: 3, warmup: 1, perHost: 2})
	require.NoError(t, err)
	require.Equal(t, 2, job.PerHost)
	require.Equal(t, "mpirun  overlap --iters=3 --warmup=1 8 16", strings.Join(job.Command, " "))
	l.Peers = []string{ring}
	require.Equal(t, []string{ring}, l.peers(ours, ring))
}

func TestWrongArguments(t *testing.T) {
	_, err := newLab(t.Context(), "x", Options{Peers: []string{ours, "foo"}})
	require.EqualError(t, err, `there is no peer "foo": want some of mcast, ring, gloo, mpi`)
	_, err = newLab(t.Context(), "x", Options{Losses: []float64{0, 1}})
	require.EqualError(t, err, "a loss of 1 is not allowed: want shares of 0 and more, less than 1")

	dir := t.TempDir()
	nothing := Experiment{Name: "x", run: func(*lab) error { return nil }}
	require.ErrorContains(t, nothing.Run(t.Context(), Options{Dir: dir}), "nothing was measured")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "what was there is not replaced by nothing")
}
