package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostInKnot is how many files of a package may need each other in a circle. A file is then a thing, and not a page of
// one.
const mostInKnot = 20

// ordered are the packages that say in their comments which file uses which. Two files may need each other all the
// same: a type, and the checks of it that the build tag invariants switches on.
var ordered = []string{"internal/protocol/multicast"}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Export, Dir string
	GoFiles, CgoFiles       []string
	Module                  *struct{ Main bool }
}

// TestKnots counts, in each package, the files of the largest circle: by what the compiler's types say, tests left out.
func TestKnots(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,CgoFiles,Module", "./...")
	list.Dir, list.Stderr = filepath.Join("..", "..", ".."), os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	var ours []listed
	for all := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := all.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			require.NoError(t, err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main && len(p.GoFiles)+len(p.CgoFiles) > mostInKnot {
			ours = append(ours, p)
		}
	}
	require.Greater(t, len(ours), 5, "there are packages of many files")
	set := token.NewFileSet()
	from := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range ours {
		_, name, _ := strings.Cut(p.ImportPath, "torch-mcast/torch-mcast/")
		knot := largest(uses(t, set, from, &p))
		limit := mostInKnot
		if slices.Contains(ordered, name) {
			limit = 2
		}
		assert.LessOrEqual(t, len(knot), limit, "%s: files that need each other in a circle: %v", name, knot)
	}
}

// uses returns, for each file of a package, the other files that it uses something from.
func uses(t *testing.T, set *token.FileSet, from types.Importer, p *listed) map[string][]string {
	t.Helper()
	var files []*ast.File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	// Errors about C's names are ignored; the build has found all others.
	config := types.Config{Importer: from, FakeImportC: true, Error: func(error) {}}
	pkg, _ := config.Check(p.ImportPath, set, files, &info)
	arrows := map[string][]string{}
	for id, object := range info.Uses {
		field, isVar := object.(*types.Var)
		method, isFunc := object.(*types.Func)
		member := isVar && field.IsField() || isFunc && method.Signature().Recv() != nil
		if object.Pkg() != pkg || !member && object.Parent() != pkg.Scope() {
			continue
		}
		at, to := set.Position(id.Pos()).Filename, set.Position(object.Pos()).Filename
		if at != to && !slices.Contains(arrows[at], to) {
			arrows[at] = append(arrows[at], to)
		}
	}
	return arrows
}

// largest returns the largest set of files that all need each other (Tarjan's algorithm).
func largest(arrows map[string][]string) (most []string) {
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v], on[v] = index[v], true
		stack = append(stack, v)
		for _, w := range arrows[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		at := slices.Index(stack, v)
		var knot []string
		for _, w := range stack[at:] {
			on[w] = false
			knot = append(knot, filepath.Base(w))
		}
		if stack = stack[:at]; len(knot) > len(most) {
			most = knot
		}
	}
	for v := range arrows {
		if index[v] == 0 {
			visit(v)
		}
	}
	slices.Sort(most)
	return most
}

// TestLargest knows circles from ways.
func TestLargest(t *testing.T) {
	require.Empty(t, largest(nil))
	require.Len(t, largest(map[string][]string{"a": {"b"}, "b": {"c"}}), 1)
	require.Equal(t, []string{"b", "c", "d"},
		largest(map[string][]string{"a": {"b"}, "b": {"c", "e"}, "c": {"d"}, "d": {"b"}, "e": {"f"}, "f": {"e"}}))
}
