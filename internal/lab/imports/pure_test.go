package main

import (
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

// TestPurePackagesStartNoGoroutine: the race detector has nothing to find in the packages that `make test-all` leaves
// out of its race run. The search for seeds has workers, and a race run of its own.
func TestPurePackagesStartNoGoroutine(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	listed, err := os.ReadFile(filepath.Join(root, "scripts", "testrun", "pure.txt"))
	require.NoError(t, err)
	for pattern := range strings.FieldsSeq(string(listed)) {
		folder, all := strings.CutSuffix(pattern, "/...")
		files := 0
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "search" || d.Name() == "testdata"):
				return filepath.SkipDir
			case d.IsDir() && !all && path != filepath.Join(root, folder):
				return filepath.SkipDir
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				files++
				assert.Empty(t, goroutines(t, path), "it needs the race detector: take it out of pure.txt")
			}
			return nil
		}))
		assert.NotZero(t, files, "%s names no package", pattern)
	}
}

// goroutines returns where a file starts goroutines.
func goroutines(t *testing.T, path string) (started []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			started = append(started, set.Position(n.Pos()).String())
		case *ast.SelectorExpr:
			if n.Sel.Name == "Go" {
				started = append(started, set.Position(n.Pos()).String())
			}
		}
		return true
	})
	return started
}
