package collnet_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/torch-mcast/torch-mcast"

// TestNothingInternalIsExported: what a package of pkg exports mentions no type that another module
// cannot name.
func TestNothingInternalIsExported(t *testing.T) {
	imports := importerOf(t)
	for _, name := range []string{"collnet", "overlap", "gpudirect"} {
		p, err := imports.Import(module + "/pkg/" + name)
		require.NoError(t, err)
		require.NotEmpty(t, p.Scope().Names())
		require.Empty(t, internalIn(p), "pkg/"+name)
	}
}

// TestInternalIsFound has one of each kind of mention, and some that are no matter of others.
func TestInternalIsFound(t *testing.T) {
	const source = `package p

import (
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

func Parameter(config.Settings)        {}
func Result() ([]*config.Settings, error) { return nil, nil }
func Generic[T reduceType]()           {}

type reduceType interface{ ~uint8; Valid() bool; With(reduce.Op) }

var Variable map[string]chan config.Settings

const Constant = reduce.Sum

type Field struct{ Nested [3]struct{ F func(reduce.Type) } }
type Embedded struct{ config.Settings }
type hidden struct{ Deep reduce.Type }
type Promoted struct{ hidden }
type Alias = config.Settings
type Defined config.Settings
type Method struct{}

func (*Method) M(reduce.Op) {}

type Interface interface{ M() reduce.Op }
type other struct{ Deep reduce.Type }
type Through struct{ Other *other }

type Fine struct{ settings config.Settings }

func (Fine) m(reduce.Op)   {}
func private(reduce.Type) {}

var FineError error = error(nil)
`
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "p.go", source, 0)
	require.NoError(t, err)
	p, err := (&types.Config{Importer: importerOf(t)}).Check("p", files, []*ast.File{f}, nil)
	require.NoError(t, err)
	found := strings.Join(internalIn(p), "\n")
	for _, name := range []string{
		"Parameter", "Result", "Generic.With", "Variable", "Constant", "Field.Nested.F", "Embedded.Settings",
		"Promoted.hidden.Deep", "Alias",
		"Method.M", "Interface.M", "Through.Other.Deep",
	} {
		require.Contains(t, found, name+": ")
	}
	require.NotContains(t, found, "Fine")
	require.NotContains(t, found, "private")
}

// importerOf reads what the compiler has written of the three packages and all that they import.
func importerOf(t *testing.T) types.Importer {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", module+"/pkg/...")
	list.Stderr = &stderr
	out, err := list.Output()
	require.NoError(t, err, stderr.String())
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package of pkg imports %s", path)
		}
		return os.Open(exports[path])
	})
}

// internalIn returns where what a package exports mentions a type of an internal package.
func internalIn(p *types.Package) []string {
	w := walker{from: p, seen: map[types.Type]bool{}}
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			w.visit(name, o.Type())
		}
	}
	return w.found
}

type walker struct {
	from  *types.Package
	seen  map[types.Type]bool
	found []string
}

// visit looks at a type that users meet at a place.
func (w *walker) visit(at string, t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.named(at, t.Obj())
		w.visit(at, t.Rhs())
	case *types.Named:
		w.named(at, t.Obj())
		for a := range t.TypeArgs().Types() {
			w.visit(at, a)
		}
		if t.Obj().Pkg() != w.from || w.seen[t] {
			return // others are looked at by themselves
		}
		w.seen[t] = true
		for m := range t.Methods() {
			if m.Exported() {
				w.visit(at+"."+m.Name(), m.Type())
			}
		}
		w.parameters(at, t.TypeParams())
		w.visit(at, t.Underlying())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				w.visit(at+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			w.visit(at+"."+m.Name(), m.Type())
		}
		for e := range t.EmbeddedTypes() {
			w.visit(at, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.visit(at, term.Type())
		}
	case *types.Signature:
		w.parameters(at, t.TypeParams())
		w.visit(at, t.Params())
		w.visit(at, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			w.visit(at, v.Type())
		}
	case *types.Map:
		w.visit(at, t.Key())
		w.visit(at, t.Elem())
	case interface{ Elem() types.Type }: // array, slice, pointer, channel
		w.visit(at, t.Elem())
	case *types.Basic, *types.TypeParam:
	default:
		panic(fmt.Sprintf("%s: a kind of type that this test does not know: %T", at, t))
	}
}

func (w *walker) parameters(at string, list *types.TypeParamList) {
	for p := range list.TypeParams() {
		w.visit(at, p.Constraint())
	}
}

func (w *walker) named(at string, o *types.TypeName) {
	if p := o.Pkg(); p != nil && strings.HasPrefix(p.Path(), module+"/") && strings.Contains(p.Path(), "/internal/") {
		w.found = append(w.found, fmt.Sprintf("%s: %s.%s", at, p.Path(), o.Name()))
	}
}
