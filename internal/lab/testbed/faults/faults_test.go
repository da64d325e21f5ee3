package faults

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var update = flag.Bool("update", false, "write docs/reference/faults.md again")

func TestDocumentIsCurrent(t *testing.T) {
	const path = "../../../../docs/reference/faults.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(document()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, document(), string(text), "go generate ./internal/lab/testbed/faults")
}

func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	over := map[Over]int{}
	family := map[Family]int{}
	for i := range All {
		r := &All[i]
		require.NoError(t, r.check())
		require.False(t, seen[r.ID], r.ID)
		seen[r.ID] = true
		over[r.Over]++
		family[r.Family]++
		if r.runs() {
			require.True(t, r.job.before != nil || r.job.during != nil || r.job.acts != nil, "%s breaks nothing", r.ID)
		}
	}
	require.GreaterOrEqual(t, len(All), 60)
	for _, o := range overs {
		require.Positive(t, over[o], o)
	}
	for _, f := range families {
		require.Positive(t, family[f], f)
	}
}

// Tests that rows name are there.
func TestNamedTestsAre(t *testing.T) {
	inGo := regexp.MustCompile(`^go test \./(\S+) -run \^(\w+)\$$`)
	inPython := regexp.MustCompile(`^pytest (\S+)::(\w+)$`)
	for i := range All {
		r := &All[i]
		if r.runs() {
			continue
		}
		pattern, want := "", ""
		if part := inGo.FindStringSubmatch(r.Test); part != nil {
			pattern, want = part[1]+"/*_test.go", "\nfunc "+part[2]+"(t *testing.T) {"
		} else if part := inPython.FindStringSubmatch(r.Test); part != nil {
			pattern, want = part[1], "\ndef "+part[2]+"("
		}
		require.NotEmpty(t, pattern, "%s: %q: want go test ./package -run ^Test$ or pytest file::test", r.ID, r.Test)
		files, err := filepath.Glob(filepath.Join("../../../..", pattern))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(files, func(path string) bool {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			return strings.Contains(string(text), want)
		}), "%s: there is no %s", r.ID, r.Test)
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		only  []string
		quick bool
		want  string // of each
		wrong string
	}{
		{nil, false, "/", ""},
		{[]string{"udp/*"}, false, "udp/", ""},
		{[]string{"*/killed", "*/late-close"}, false, "/", ""},
		{[]string{"udp/nothing"}, false, "", "no row is meant by udp/nothing: want IDs"},
		{[]string{"["}, false, "", "--only=[: syntax error in pattern"},
	} {
		rows, err := (&Options{Only: c.only, Quick: c.quick}).Select()
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
			continue
		}
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		for _, r := range rows {
			require.Contains(t, r.ID, c.want)
		}
	}
}

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
	if testing.Short() {
		t.Skip("what this runs is another program, which has no race detector: it runs without -short")
	}
	folder, err := systest.Programs()
	require.NoError(t, err)
	return programs.In(folder)
}

// Rows of deaths and errors that nobody needs a clock to see are kept, however long it takes, and nothing is left of
// them. With the build tag links all quick rows are held to their bounds.
func TestRowsWithoutAClock(t *testing.T) {
	var text bytes.Buffer
	_, err := Run(t.Context(),
		Options{Only: []string{"shm/killed", "shm/aborts", "shm/closes-early", "shm/disagrees", "udp/killed"},
			Slack: systest.Limit, Programs: build(t), Text: &text})
	t.Log("\n" + text.String())
	require.NoError(t, err)
	requireNoBed(t)
}

// What ranks have said is held to what the row says.
func TestCompare(t *testing.T) {
	told := func(text string) said { return said{joined: true, failed: &worker.Line{Op: "allreduce", Error: text}} }
	closed := said{joined: true, closed: &worker.Line{}}
	lost, well := Row{Ends: Errors, Says: []string{"rank 2 is lost|rank 2 has left"}, Fails: []int{2}, Bound: AtOnce},
		Row{Ends: Succeeds, Bound: AtOnce}
	all := func(s said) []said { return slices.Repeat([]said{s}, ranksOfAJob) }
	but := func(s []said, rank int, with said) []said { s[rank] = with; return s }
	for name, c := range map[string]struct {
		row  Row
		said []said
		took float64
		hung error
		want string // empty: the row is kept
	}{
		"all are told":         {lost, all(told("rank 2 is lost")), 1, nil, ""},
		"in other words":       {lost, all(told("rank 2 has left")), 1, nil, ""},
		"all but the lost one": {lost, but(all(told("rank 2 is lost")), 2, said{}), 1, nil, ""},
		"of another rank": {lost, but(all(told("rank 2 is lost")), 1, told("rank 3 is lost")), 1, nil,
			`the error of rank 1 does not say "rank 2 is lost|rank 2 has left"`},
		"one is told nothing":       {lost, but(all(told("rank 2 is lost")), 0, said{}), 1, nil, "rank 0 was told nothing"},
		"too late":                  {lost, all(told("rank 2 is lost")), 2.1, nil, "it took 2.1 s, and not at most 2s"},
		"one hangs, which was said": {lost, but(all(told("rank 2 is lost")), 0, said{}), 99, errHang, ""},
		"all close":                 {well, all(closed), 1, nil, ""},
		"one fails": {well, but(all(closed), 3, told("no memory")), 1, nil,
			"rank 3 failed: allreduce: no memory"},
		"one does not close": {well, but(all(closed), 3, said{joined: true}), 1, nil, "rank 3 has not closed"},
		"one closes badly": {well, but(all(closed), 3, said{closed: &worker.Line{Error: "busy"}}), 1, nil,
			"rank 3 could not close well: busy"},
		"a wrong element": {well, but(all(closed), 3, said{closed: &worker.Line{}, wrong: 1}), 1, nil,
			"rank 3 has 1 wrong elements"},
		"descriptors": {well, but(all(closed), 3, said{closed: &worker.Line{Descriptors: 2}}), 1, nil,
			"rank 3 has left 2 descriptors open"},
		"a warning": {Row{Ends: Succeeds, Bound: AtOnce, Warns: []string{"a flood"}},
			but(all(closed), 0, said{closed: &worker.Line{}, notes: []string{"a flood of 3"}}), 1, nil, ""},
		"no warning": {Row{Ends: Succeeds, Bound: AtOnce, Warns: []string{"a flood"}}, all(closed), 1, nil,
			`no rank warned of "a flood"`},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trial{
				Scene: &Scene{row: &c.row, run: &launch.Run{}, ranks: &ranks{all: c.said}}, outcome: Outcome{Took: c.took},
			}
			tr.compare(c.hung)
			if c.want == "" {
				require.Empty(t, tr.why)
				return
			}
			require.Contains(t, strings.Join(tr.why, "; "), c.want)
		})
	}
}

func requireNoBed(t *testing.T) {
	t.Helper()
	names, err := testbed.List()
	require.NoError(t, err)
	for _, name := range names {
		require.False(t, strings.HasPrefix(name, bedNames) && strings.HasSuffix(name, fmt.Sprint("-", os.Getpid())), name)
	}
}

// check returns an error if a row is wrong.
func (r *Row) check() error {
	wrong := func(what string) error { return fmt.Errorf("faults: row %s: %s", r.ID, what) }
	switch {
	case len(r.ID) <= len(r.Over) || r.ID[:len(r.Over)+1] != string(r.Over)+"/":
		return wrong("its ID must begin with its transport (Over) and a slash")
	case !slices.Contains(families, r.Family):
		return wrong("no such family")
	case !slices.Contains(overs, r.Over):
		return wrong("it goes over nothing that there is")
	case r.Fault == "" || r.Then == "":
		return wrong("it lacks the fault, or the outcome (Then)")
	case r.Bound == Bound{}:
		return wrong("within which bound?")
	case r.Ends == Errors && r.runs() && len(r.Says) == 0:
		return wrong("what does the error say?")
	case r.Ends == Succeeds && len(r.Says) > 0:
		return wrong("a success says nothing")
	}
	return nil
}
