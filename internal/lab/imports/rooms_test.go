package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostLines is how many lines a room may have, tests left out; mostFields how many fields a group may have.
const (
	mostLines  = 5000
	mostFields = 20
)

// mayMatch are the rooms that may read text with regular expressions: programs, what judges hosts and logs, generators
// and the laboratory. Elsewhere facts are fields.
var mayMatch = []string{
	"cmd", "conformance", "ncclnet", "internal/cli", "internal/bench", "internal/doctor", "internal/advise",
	"internal/nccl",
	"internal/api", "internal/lab",
}

// eachFile calls f for each Go file below internal, pkg and ncclnet, tests left out, with its room.
func eachFile(t *testing.T, f func(room, path string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	files := 0
	for _, top := range []string{"internal", "pkg", "ncclnet"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			room, err := filepath.Rel(root, filepath.Dir(path))
			require.NoError(t, err)
			files++
			f(filepath.ToSlash(room), path, text)
			return nil
		}))
	}
	require.Greater(t, files, 500, "the files are found")
}

// TestRoomsAreSmall: a room has mostLines lines at most, but for the laboratory's.
func TestRoomsAreSmall(t *testing.T) {
	lines := map[string]int{}
	eachFile(t, func(room, _ string, text []byte) { lines[room] += bytes.Count(text, []byte("\n")) })
	for room, n := range lines {
		if !strings.HasPrefix(room, "internal/lab/") {
			assert.LessOrEqual(t, n, mostLines, room)
		}
	}
}

// TestTextIsNoChannel: below the programs nothing takes facts out of texts.
func TestTextIsNoChannel(t *testing.T) {
	matched := 0
	eachFile(t, func(room, path string, text []byte) {
		if !bytes.Contains(text, []byte(`"regexp"`)) {
			return
		}
		matched++
		may := false
		for _, allowed := range mayMatch {
			may = may || room == allowed || strings.HasPrefix(room, allowed+"/")
		}
		assert.True(t, may, "%s: a fact that another room needs is a field, not a text", path)
	})
	require.NotZero(t, matched, "imports are found")
}

// TestAGroupIsSmall: what a group knows is in the rooms that know it.
func TestAGroupIsSmall(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "group", "group.go"), nil, 0)
	require.NoError(t, err)
	fields := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "Group" {
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				fields += max(1, len(f.Names))
			}
		}
		return true
	})
	require.NotZero(t, fields)
	require.LessOrEqual(t, fields, mostFields)
}

// TestLevelsAreNoFlags: no function is told by a boolean on which level it works.
func TestLevelsAreNoFlags(t *testing.T) {
	functions := 0
	eachFile(t, func(room, path string, text []byte) {
		if room != "internal/hierarchy" && room != "internal/group" && room != "internal/monitor" {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			f, ok := n.(*ast.FuncType)
			if !ok {
				return true
			}
			functions++
			for _, p := range f.Params.List {
				if kind, ok := p.Type.(*ast.Ident); !ok || kind.Name != "bool" {
					continue
				}
				for _, name := range p.Names {
					assert.NotContains(t, []string{"across", "within", "node", "column", "nested", "level", "crossing"}, name.Name,
						path)
				}
			}
			return true
		})
		assert.NotContains(t, string(text), "g.node", "%s: a group has levels, not a node that may be there", path)
	})
	require.Greater(t, functions, 100)
}

// TestLinksAreRun: the step "links" of the tests names each package that has tests over real links.
func TestLinksAreRun(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	steps, err := os.ReadFile(filepath.Join(root, "scripts", "testrun", "steps.py"))
	require.NoError(t, err)
	found := 0
	for _, top := range []string{"internal", "cmd", "pkg", "ncclnet"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "links_test.go" {
				found++
				room, err := filepath.Rel(root, filepath.Dir(path))
				require.NoError(t, err)
				assert.Contains(t, string(steps), `"./`+filepath.ToSlash(room)+`"`)
			}
			return err
		}))
	}
	require.NotZero(t, found)
}
