package seal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tags are compared in constant time: by crypto/subtle, or by GCM itself. What compares bytes and takes longer the more
// of them are right is not there to be used.
func TestComparesInConstantTime(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	compares := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		for _, i := range file.Imports {
			assert.NotContains(t, []string{`"bytes"`, `"slices"`, `"reflect"`, `"strings"`}, i.Path.Value,
				"%s imports what compares bytes", name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					for _, side := range []ast.Expr{n.X, n.Y} {
						call, ok := side.(*ast.CallExpr)
						if _, array := side.(*ast.IndexExpr); array || ok && converts(call) {
							t.Errorf("%v compares bytes, of a tag perhaps", fset.Position(n.Pos()))
						}
					}
				}
			case *ast.SelectorExpr:
				if n.Sel.Name == "ConstantTimeCompare" {
					compares++
				}
			}
			return true
		})
	}
	assert.Positive(t, compares)
}

// converts reports whether a call is a conversion to a string or to an array.
func converts(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	_, array := call.Fun.(*ast.ArrayType)
	return array || ok && name.Name == "string"
}
