package api

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write again what the tables give")

// TestWhatIsWrittenIsCurrent: code and documents are what the tables give.
func TestWhatIsWrittenIsCurrent(t *testing.T) {
	for _, o := range outputs {
		path := filepath.Join("../..", o.path)
		is, err := os.ReadFile(path)
		if !*update || o.part != "" {
			require.NoError(t, err)
		}
		want, err := o.written(string(is))
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
			continue
		}
		require.Equal(t, want, string(is), "%s: run go generate ./internal/api", o.path)
	}
}

// released are the counters of struct mcast_stats that programs were built with.
var released = []string{
	"gather_ops", "gather_bytes", "gather_sent_bytes", "gather_control_bytes", "gather_received_bytes",
	"reduce_ops", "reduce_bytes", "reduce_sent_bytes", "chunks_lost", "chunks_repaired", "chunks_injected",
	"chunks_dropped",
	"gather_busy_ns", "reduce_busy_ns", "overlap_ns", "gather_queued_ns", "reduce_queued_ns", "gather_peers_ns",
	"reduce_peers_ns",
	"gather_turn_ns", "reduce_turn_ns", "gather_transfer_ns", "reduce_transfer_ns", "gather_finish_ns", "reduce_finish_ns",
	"reduce_received_bytes", "reduce_resent", "reduce_refused", "switch_ops", "direct_ops", "fallbacks",
	"chunks_mismatched", "sends_refused", "sends_offline", "sends_too_large", "warnings",
}

func TestReleasedCountersKeepTheirPlace(t *testing.T) {
	require.GreaterOrEqual(t, len(counters), len(released))
	for i, name := range released {
		require.Equal(t, name, counters[i].Name, "counter %d of struct mcast_stats", i)
	}
}

func TestCountersAreComplete(t *testing.T) {
	names := map[string]bool{}
	sentence := regexp.MustCompile(`^[A-Z][^|]*\.$`)
	for _, c := range counters {
		assert.Regexp(t, `^[a-z]+(_[a-z]+)*$`, c.Name)
		assert.False(t, names[c.Name], "%s stands twice", c.Name)
		names[c.Name] = true
		assert.Contains(t, Groups(), c.Group, c.Name)
		assert.Regexp(t, sentence, c.What, c.Name)
		assert.Regexp(t, sentence, c.Normal, c.Name)
		assert.Equal(t, c.Unit == nanoseconds, c.GoType() == "time.Duration", c.Name)
		assert.Equal(t, c.Unit == nanoseconds, regexp.MustCompile(`_ns$`).MatchString(c.Name), c.Name)
		assert.Equal(t, c.Unit == bytes, regexp.MustCompile(`_bytes$`).MatchString(c.Name), c.Name)
		assert.Equal(t, c.Unit == operations, regexp.MustCompile(`_ops$`).MatchString(c.Name), c.Name)
	}
}

func TestGoNames(t *testing.T) {
	for name, want := range map[string]string{
		"warnings": "Warnings", "sends_too_large": "SendsTooLarge", "overlap_ns": "Overlap",
	} {
		i := slices.IndexFunc(counters, func(c Counter) bool { return c.Name == name })
		require.Equal(t, want, counters[i].GoName())
	}
}

// TestErrorsAreComplete: every kind of fault has one code, and codes are as programs know them.
func TestErrorsAreComplete(t *testing.T) {
	codes := map[int]string{}
	var faults []string
	for _, e := range errorTable {
		assert.Regexp(t, `^[A-Z][a-zA-Z]+Error$`, e.Exception)
		assert.Regexp(t, `^[A-Z][^|]*\.$`, e.What, e.Exception)
		assert.Regexp(t, `^[A-Z][^|]*\.$`, e.Then, e.Exception)
		assert.Equal(t, e.Code == 0, e.Name == "", e.Exception)
		assert.Equal(t, e.Code == 0, e.NCCL == "", e.Exception)
		if e.Code != 0 {
			codes[e.Code] = e.Name
		}
		faults = append(faults, e.Faults...)
	}
	assert.Equal(t, map[int]string{
		1: "ARGUMENT", 2: "UNAVAILABLE", 3: "TIMEOUT", 4: "RANK", 5: "MISMATCH", 6: "CLOSED", 7: "BUSY", 8: "INTERNAL",
	}, codes)
	assert.ElementsMatch(t, faultKinds(t), faults, "the kinds of internal/mesh/fault.go, each in one row")
}

// faultKinds reads the names of the constants of mesh.FaultKind.
func faultKinds(t *testing.T) (names []string) {
	for name, token := range declared(t, "../mesh/fault.go") {
		if token == "const" {
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// TestErrorsOfGoExist: all that pkg/collnet has are in the table, but for what only the outside
// needs.
func TestErrorsOfGoExist(t *testing.T) {
	exported := declared(t, "../../pkg/collnet/errors.go")
	for _, e := range errorTable {
		for _, name := range e.Go {
			assert.Contains(t, exported, name, e.Exception)
			delete(exported, name)
		}
	}
	for name := range exported {
		assert.False(t, strings.HasPrefix(name, "Err") || strings.HasSuffix(name, "Error"), "%s is in no row", name)
	}
}

// declared returns what a file exports on its top level: "const", "type" or "var" by name.
func declared(t *testing.T, path string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	names := map[string]string{}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok {
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					names[s.Names[0].Name] = d.Tok.String()
				case *ast.TypeSpec:
					names[s.Name.Name] = d.Tok.String()
				}
			}
		}
	}
	maps.DeleteFunc(names, func(name, _ string) bool { return !ast.IsExported(name) })
	return names
}

func TestReplace(t *testing.T) {
	got, err := replace("a\n# BEGIN x: y\nold\nold\n# END x\nb\n", "x", "new\n")
	require.NoError(t, err)
	require.Equal(t, "a\n# BEGIN x: y\nnew\n# END x\nb\n", got)
	for _, bad := range []string{"", "# BEGIN x\n", "# END x\n# BEGIN x\n", "# BEGIN y\n# END y\n"} {
		_, err := replace(bad, "x", "new\n")
		require.ErrorContains(t, err, "BEGIN x")
	}
}

func TestComment(t *testing.T) {
	got := comment("\t// A: ", "\t// ",
		"aaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ccccccccccccccccccccccccc", "dddddddd.")
	require.Equal(t,
		"\t// A: aaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ccccccccccccccccccccccccc\n\t// dddddddd.", got)
}

// TestForGo: counters of one word have another name in Go as well.
func TestForGo(t *testing.T) {
	require.Equal(t, "look at ReduceResent, Fallbacks and Info", forGo("look at reduce_resent, fallbacks and info()"))
}
