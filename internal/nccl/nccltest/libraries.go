// Package nccltest makes what tests of NCCL's surroundings need: libraries that look like NCCL and
// like plugins from outside, and hosts made of files.
package nccltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// NCCL compiles a libnccl.so.2 of a version, as ncclGetVersion tells it, that looks for the tables
// of these names, into a folder. It returns the path.
func NCCL(t *testing.T, dir string, version int, tables ...string) string {
	t.Helper()
	return compile(t, filepath.Join(dir, "libnccl.so.2"), fmt.Sprintf(`
const char *const looked_for[] = { "%s" };
int ncclGetVersion(int *version) { *version = %d; return 0; }
`, strings.Join(tables, `", "`), version))
}

// Plugin is how a plugin behaves.
type Plugin struct {
	Name    string   // as it calls itself
	Devices []string // in its net table
	Paths   []string // of its devices on the PCI bus; nil: they have none
	CollNet int      // how many of them are CollNet's
	Fails   string   // the line that it logs before its init fails; empty: init works
	Tables  []string // that it exports beside those of net v8 and CollNet v8
	Needs   string   // a function that nobody has
}

// Library compiles a plugin to a path.
func (p Plugin) Library(t *testing.T, path string) string {
	t.Helper()
	var more strings.Builder
	for _, table := range p.Tables {
		fmt.Fprintf(&more, "int %s;\n", table)
	}
	if p.Needs != "" {
		fmt.Fprintf(&more, "void %s(void);\nvoid (*needed)(void) = %s;\n", p.Needs, p.Needs)
	}
	return compile(t, path, fmt.Sprintf(`
#include <string.h>
typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
struct props {
	const char *name, *path;
	unsigned long guid;
	int pointers, global, speed, port;
	float latency;
	int rest[4];
};
struct table { const char *name; int (*init)(logger); int (*devices)(int *); int (*properties)(int, struct props *); };
static const char *const names[] = { "%s" }, *const paths[] = { "%[7]s" }, *const fails = "%[2]s";
static int init(logger log)
{
	if (*fails)
		log(2, 0, __FILE__, __LINE__, "%%s", fails);
	return *fails ? 3 : 0;
}
static int net(int *n) { *n = %[3]d; return 0; }
static int coll(int *n) { *n = %[4]d; return 0; }
static int properties(int device, struct props *p)
{
	memset(p, 0, sizeof *p);
	p->name = names[device];
	p->path = *paths[0] ? paths[device] : 0;
	p->speed = 10000;
	return 0;
}
struct table ncclNetPlugin_v8 = { "%[5]s", init, net, properties };
struct table ncclCollNetPlugin_v8 = { "%[5]s", init, coll, properties };
%[6]s
`, strings.Join(p.Devices, `", "`), p.Fails, len(p.Devices), p.CollNet, p.Name, more.String(),
		strings.Join(p.Paths, `", "`)))
}

// Crashing compiles a library that ends any process that loads it.
func Crashing(t *testing.T, path string) string {
	t.Helper()
	return compile(t, path, `__attribute__((constructor)) static void crash(void) { *(volatile int *)8 = 0; }`)
}

// compiled are libraries by their source: a test that changes a variable makes no new one.
var compiled sync.Map

func compile(t *testing.T, path, source string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	library, there := compiled.Load(source)
	if !there {
		dir := t.TempDir()
		file, out := filepath.Join(dir, "library.c"), filepath.Join(dir, "library.so")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
		said, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-w", "-o", out, file).CombinedOutput()
		require.NoError(t, err, "%s", said)
		library, err = os.ReadFile(out)
		require.NoError(t, err)
		compiled.Store(source, library)
	}
	require.NoError(t, os.WriteFile(path, library.([]byte), 0o755))
	return path
}
