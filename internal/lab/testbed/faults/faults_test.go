package faults

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

var update = flag.Bool("update", false, "write docs/FAULTS.md again")

func TestDocumentIsCurrent(t *testing.T) {
	const path = "../../../../docs/FAULTS.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(Document()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, Document(), string(text), "go generate ./internal/lab/testbed/faults")
}

func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	over := map[Over]int{}
	family := map[Family]int{}
	for i := range All {
		r := &All[i]
		require.NoError(t, r.Check())
		require.False(t, seen[r.ID], r.ID)
		seen[r.ID] = true
		over[r.Over]++
		family[r.Family]++
		if r.runs() {
			require.True(t, r.job.before != nil || r.job.during != nil || r.job.acts != nil, "%s breaks nothing", r.ID)
		}
	}
	require.GreaterOrEqual(t, len(All), 60)
	for _, o := range Overs {
		require.Positive(t, over[o], o)
	}
	for _, f := range Families {
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

// built is the program that ranks are, built once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "faults-test-")
	if err != nil {
		return "", err
	}
	scratch = dir
	path := filepath.Join(dir, "mcast")
	out, err := exec.Command("go", "build", "-o", path, "../../../../cmd/mcast").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, err
})

var scratch string // what TestMain removes

func TestMain(m *testing.M) {
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch)
	}
	os.Exit(code)
}

// program returns the path of the program, for tests that need root.
func program(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	if testing.Short() {
		t.Skip("what this runs is another program, which has no race detector: it runs without -short")
	}
	path, err := built()
	require.NoError(t, err)
	return path
}

// Every row that is quick is kept, and nothing is left of it.
func TestQuickRows(t *testing.T) {
	var text bytes.Buffer
	_, err := Run(t.Context(), Options{Quick: true, Slack: 3 * time.Second, Mcast: program(t), Text: &text})
	t.Log("\n" + text.String())
	require.NoError(t, err)
	requireNoBed(t)
}

// A row that promises what does not happen is found out, whatever it promises.
func TestABrokenRowIsFoundOut(t *testing.T) {
	saved := All
	defer func() { All = saved }()
	var wants []string
	broken := func(want string, change func(*Row)) {
		r := saved[slices.IndexFunc(saved, func(r Row) bool { return r.ID == "shm/killed" })]
		r.ID = fmt.Sprint("shm/broken-", len(wants))
		change(&r)
		wants, All = append(wants, want), append(All, r)
	}
	All = nil
	broken("rank 0 failed: ", func(r *Row) { r.Ends, r.Says = Succeeds, nil })
	broken(`does not say "rank 3 is lost"`, func(r *Row) { r.Says = []string{"rank 3 is lost"} })
	broken("ranks [2] have not been told", func(r *Row) { r.Fails = nil })
	broken(`no rank warned of "a flood"`, func(r *Row) { r.Warns = []string{"a flood"} })
	broken("s, and not at most 1ns", func(r *Row) { r.Bound = Bound{Plus: 1} })
	broken("ranks [0 1 3] have not been told", func(r *Row) { r.job.during = lasts(0) })
	broken("it could not be tried: ", func(r *Row) { r.job.during = link(func(*Scene) string { return "nowhere" }, false) })
	broken("rank 0 failed: ", func(r *Row) { r.Ends, r.Says = Succeeds, nil })
	var out bytes.Buffer
	outcomes, err := Run(t.Context(), Options{Mcast: program(t), JSON: &out, Patience: 2 * time.Second})
	require.ErrorIs(t, err, ErrBroken)
	require.Len(t, outcomes, len(wants))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 1+len(wants), "the machine and the trials")
	for i, want := range wants {
		require.ErrorContains(t, err, All[i].ID)
		var read Outcome
		require.NoError(t, json.Unmarshal([]byte(lines[1+i]), &read))
		require.False(t, read.Kept)
		require.Contains(t, strings.Join(read.Why, "; "), want)
	}
	requireNoBed(t)
}

func requireNoBed(t *testing.T) {
	t.Helper()
	names, err := testbed.List()
	require.NoError(t, err)
	for _, name := range names {
		require.False(t, strings.HasPrefix(name, bedNames) && strings.HasSuffix(name, fmt.Sprint("-", os.Getpid())), name)
	}
}
