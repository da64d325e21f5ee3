//go:build !race && !invariants

package figures

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write again the claims, in benchmarks/results/sim and "+
	"docs/project/reproduction.md, that the code makes of the committed rows")

var read = flag.String("read", "", "figures, such as fig02,fig12, or all: somebody has read their sections of "+
	"docs/project/reproduction.md beside the claims")

const (
	top      = "../../../.."
	results  = top + "/benchmarks/results"
	page     = "docs/project/reproduction.md"
	document = top + "/" + page
	testbeds = top + "/benchmarks/results/testbed/README.md"
)

// The committed rows, claims and plots of every figure agree with the code. `make figures-check` runs this;
// docs/project/testing.md says how to mend a failure.
func TestCommitted(t *testing.T) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	var all []Claim
	sheets := map[string]*sheet{}
	for _, f := range All {
		t.Run(f.Name+"/rows", func(t *testing.T) {
			s := f.committed(t)
			sheets[f.Name] = s
			all = append(all, s.claims...)
		})
		t.Run(f.Name+"/small", f.sameSmall)
	}
	if t.Failed() {
		return // the document would be compared with wrong rows
	}
	if *update {
		text = []byte(rewrite(string(text), all))
		require.NoError(t, os.WriteFile(document, text, 0o644))
	}
	for _, f := range All {
		t.Run(f.Name+"/document", func(t *testing.T) { f.documented(t, string(text), sheets[f.Name]) })
	}
	t.Run("table", func(t *testing.T) {
		has(t, strings.Contains(string(text), tally(all)), "the table of claims:\n"+tally(all))
		var rows []string
		for i := range all {
			rows = append(rows, all[i].Markdown())
		}
		for _, line := range claimRows.FindAllString(string(text), -1) {
			assert.True(t, slices.Contains(rows, line), "docs/project/reproduction.md has a row that no figure claims:\n%s",
				line)
		}
	})
}

// committed draws a figure from its committed rows, and compares rows and claims with what the code makes of them.
func (f Figure) committed(t *testing.T) *sheet {
	path := filepath.Join(results, "sim", f.Name+".ndjson")
	was, err := readFile(path)
	require.NoError(t, err)
	require.Regexp(t, `^\d{4}-\d\d-\d\d$`, was.Date, "no date")
	require.Regexp(t, `^[0-9a-f]{8,40}$`, was.Commit, "no commit, or one that was changed")
	for _, r := range was.rows {
		var at struct{ Date, Commit string }
		require.NoError(t, json.Unmarshal(r, &at))
		require.Equal(t, struct{ Date, Commit string }{was.Date, was.Commit}, at, "a row of another run")
	}
	rows, err := hash(was.rows)
	require.NoError(t, err)
	require.Equal(t, was.Rows, rows, "rows were changed by hand")
	s, err := f.sketch(Options{Seed: was.Seed}, was.rows)
	require.NoError(t, err)
	if *update {
		was.claims = s.claims
		require.NoError(t, was.write(path))
	}
	require.Len(t, was.claims, len(s.claims))
	for i, c := range s.claims {
		require.Equal(t, c.text(t), was.claims[i].text(t), "the code claims otherwise")
	}
	return s
}

// text is a claim as others' processors have it, too.
func (c *Claim) text(t *testing.T) string {
	line, err := json.Marshal(c)
	require.NoError(t, err)
	text, err := same(line)
	require.NoError(t, err)
	return text
}

// sameSmall runs a figure's small version: its events must be the ones that the committed rows were made with, or ones
// that somebody has looked at.
func (f Figure) sameSmall(t *testing.T) {
	was, err := readFile(filepath.Join(results, "sim", f.Name+".ndjson"))
	require.NoError(t, err)
	small, err := f.small(Options{})
	require.NoError(t, err)
	if was.Stays != nil {
		require.NotEqual(t, was.Small, small, "has no reason to stay: it has not changed")
		require.Greater(t, len(strings.Fields(was.Stays.Why)), 3, "stays without a reason")
		was.Small = was.Stays.Small
	}
	require.Equal(t, was.Small, small, "the code has changed since the rows of %s were made with %s: make them again, "+
		"mcast-lab sim figures --out benchmarks/results/sim --only %s, or say in their first row why they stay", was.Date,
		was.Commit, f.Name)
}

// documented compares the document with the figure's claims, sentences and plots, word for word.
func (f Figure) documented(t *testing.T, text string, s *sheet) {
	require.NotEmpty(t, s.claims)
	lines := strings.Split(text, "\n")
	for _, c := range s.claims {
		has(t, slices.Contains(lines, c.Markdown()), c.Markdown())
	}
	for _, said := range s.said {
		in := text
		if said.document != page {
			other, err := os.ReadFile(filepath.Join(top, said.document))
			require.NoError(t, err)
			in = string(other)
		}
		assert.True(t, strings.Contains(unwrapped(in), said.text), "%s lacks, word for word:\n%s", said.document, said.text)
	}
	path := filepath.Join(results, "sim", f.Name+".ndjson")
	was, err := readFile(path)
	require.NoError(t, err)
	if was.Stays != nil {
		has(t, strings.Contains(unwrapped(text), was.Stays.Why), was.Stays.Why)
	}
	sum := sha256.Sum256([]byte(unwrapped(section(t, text, f.Name))))
	now := hex.EncodeToString(sum[:8])
	if *read == "all" || slices.Contains(strings.Split(*read, ","), f.Name) {
		was.Read = now
		require.NoError(t, was.write(path))
	}
	require.Equal(t, was.Read, now, "the section has changed: read it beside its claims, then say so with -read %s",
		f.Name)
	plots, err := filepath.Glob(filepath.Join(results, "sim", f.Name+"*.svg"))
	require.NoError(t, err)
	require.Len(t, plots, len(s.charts))
	for _, c := range s.charts {
		plot := "(../../benchmarks/results/sim/" + s.file(c) + ".svg)"
		has(t, strings.Contains(text, plot), plot)
	}
}

// has fails where the document lacks something, without printing the whole document.
func has(t *testing.T, ok bool, what string) {
	assert.True(t, ok, "docs/project/reproduction.md lacks, word for word:\n%s", what)
}

// section is the part of the document, under a heading, that has the command which makes the figure, and the figure's
// rows in the table at the top.
func section(t *testing.T, text, name string) string {
	for _, part := range regexp.MustCompile(`(?m)^###? `).Split(text, -1) {
		if regexp.MustCompile(`(?m)^.*--only ([a-z0-9-]+,)*` + name + `[,` + "`" + `]`).MatchString(part) {
			return part + strings.Join(regexp.MustCompile("(?m)^\\| [^|]*`"+name+"`.*$").FindAllString(text, -1), "\n")
		}
	}
	require.Fail(t, "docs/project/reproduction.md has no section with --only "+name)
	return ""
}

// readFile reads what Make has written.
func readFile(path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &file{}
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var c Claim
		switch {
		case i == 0:
			err = json.Unmarshal(line, &f.made)
		case bytes.Contains(line, []byte(`"claim":`)):
			err = json.Unmarshal(line, &c)
			f.claims = append(f.claims, c)
		default:
			f.rows = append(f.rows, line)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return f, nil
}

// claimRows are the lines of tables that end with a verdict.
var claimRows = regexp.MustCompile(`(?m)^\|( [^|\n]* \|){4} (agrees|differs|kept|missed|arithmetic|beside) \|$`)

// unwrapped has a blank for every break of a line.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// rewrite brings the document's rows and its table of claims up to date. A row is known by its claim.
func rewrite(text string, all []Claim) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for j := range all {
			if c := &all[j]; claimRows.MatchString(line) &&
				strings.HasPrefix(line, fmt.Sprintf("| %s | %s | ", c.What, c.Paper)) {
				lines[i] = c.Markdown()
			}
		}
	}
	text = strings.Join(lines, "\n")
	table := regexp.MustCompile(`(?m)^\| figure \| claims \|.*\n(\|.*\n)*`)
	return table.ReplaceAllLiteralString(text, tally(all))
}

// keptFile is a file of results that says nothing of date and commit, and why it is not made again.
type keptFile struct {
	File   string `json:"file"`
	Hash   string `json:"hash"`
	Date   string `json:"date"`   // of its commit
	Commit string `json:"commit"` // that it came with
	Why    string `json:"why"`
}

// Every result of the laboratory says date and commit in each row, or is listed with the reason why it stays.
func TestUnstamped(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(results, "stays.ndjson"))
	require.NoError(t, err)
	text, err := os.ReadFile(testbeds)
	require.NoError(t, err)
	listed := map[string]keptFile{}
	for line := range strings.Lines(string(list)) {
		var k keptFile
		require.NoError(t, json.Unmarshal([]byte(line), &k))
		require.Greater(t, len(strings.Fields(k.Why)), 3, "%s stays without a reason", k.File)
		row := fmt.Sprintf("| %s | %s, %s | %s |", k.File, k.Date, k.Commit, k.Why)
		assert.True(t, strings.Contains(string(text), row), "benchmarks/results/testbed/README.md lacks:\n%s", row)
		listed[k.File] = k
	}
	for _, folder := range []string{"sim", "testbed"} {
		files, err := filepath.Glob(filepath.Join(results, folder, "*.ndjson"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			rows, err := os.ReadFile(file)
			require.NoError(t, err)
			name := folder + "/" + filepath.Base(file)
			k, ok := listed[name]
			delete(listed, name)
			if stamped(t, rows) {
				require.False(t, ok, "%s says date and commit: take it from stays.ndjson", name)
				continue
			}
			require.True(t, ok, "%s has rows without date and commit, and benchmarks/results/stays.ndjson no reason for it",
				name)
			sum := sha256.Sum256(rows)
			require.Equal(t, k.Hash, hex.EncodeToString(sum[:8]), "%s was changed", name)
		}
	}
	require.Empty(t, listed, "no such files")
}

// stamped tells whether every measurement has date and commit.
func stamped(t *testing.T, rows []byte) bool {
	return !slices.ContainsFunc(strings.Split(strings.TrimSpace(string(rows)), "\n"), func(line string) bool {
		var at struct{ Date, Commit, Claim, Goal string }
		require.NoError(t, json.Unmarshal([]byte(line), &at))
		return at.Claim+at.Goal == "" && (at.Date == "" || at.Commit == "") // what was concluded has no date of its own
	})
}

// verdicts are all, in the order of the table of claims.
var verdicts = []Verdict{Agrees, Differs, Kept, Missed, Arithmetic, Beside}

// tally is the table of claims of docs/project/reproduction.md: for each figure how many have a rule that can
// fail, and what became of all.
func tally(claims []Claim) string {
	var b strings.Builder
	b.WriteString("| figure | claims | with a rule that can fail")
	for _, v := range verdicts {
		fmt.Fprintf(&b, " | %s", v)
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", 2+len(verdicts)) + "|\n")
	line := func(name string, of func(*Claim) bool) {
		n, ruled, became := 0, 0, map[Verdict]int{}
		for i := range claims {
			c := &claims[i]
			if !of(c) {
				continue
			}
			n++
			became[c.Verdict]++
			if c.Rule != "" {
				ruled++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d", name, n, ruled)
		for _, v := range verdicts {
			fmt.Fprintf(&b, " | %d", became[v])
		}
		b.WriteString(" |\n")
	}
	for _, f := range All {
		line(f.Name, func(c *Claim) bool { return c.Figure == f.Name })
	}
	line("all", func(*Claim) bool { return true })
	return b.String()
}
