package version_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinkerSetsWhatIsThere: each variable that a build has the linker set, with -X, is a string in the package that is
// named. Of one that is not there the linker says nothing.
func TestLinkerSetsWhatIsThere(t *testing.T) {
	const module = "github.com/torch-mcast/torch-mcast/"
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "scripts", "*"))
	require.NoError(t, err)
	found := map[string]int{}
	for _, file := range append(files, filepath.Join(root, "Makefile"), filepath.Join(root, "python", "setup.py")) {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			require.NoError(t, err)
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, set := range regexp.MustCompile(`-X[ =]["']?([^\s=]*)\.(\w+)=`).FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(file)]++
			folder, ours := strings.CutPrefix(set[1], module)
			if assert.True(t, ours, "%s: %s is no package of %s", file, set[1], module) {
				assert.Contains(t, stringsOf(t, filepath.Join(root, folder)), set[2], "%s sets it in %s", file, folder)
			}
		}
	}
	require.Positive(t, found["Makefile"])
	require.Positive(t, found["setup.py"])
}

// stringsOf returns the variables of a package that the linker can set.
func stringsOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if all, ok := d.(*ast.GenDecl); ok && all.Tok == token.VAR {
				for _, s := range all.Specs {
					names = append(names, settable(s.(*ast.ValueSpec))...)
				}
			}
		}
	}
	return names
}

// settable returns the names of var name string.
func settable(s *ast.ValueSpec) (names []string) {
	if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "string" {
		for _, name := range s.Names {
			names = append(names, name.Name)
		}
	}
	return names
}
