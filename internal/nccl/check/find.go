package check

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

const (
	ncclFile   = "libnccl.so.2"
	pluginName = "mcast"
	pluginFile = "libnccl-net-" + pluginName + ".so"
)

// pythonPath returns where a Python looks for packages; nil: there is none.
func pythonPath(ctx context.Context, python string, environ []string) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, python, "-c", "import json, sys; print(json.dumps(sys.path))")
	ask.Env = environ
	out, err := ask.Output()
	if err != nil {
		return nil
	}
	var path []string
	if json.Unmarshal(bytes.TrimSpace(out), &path) != nil {
		return nil
	}
	return path
}

// python returns the interpreter to ask: the one that was named, else the one of the virtual
// environment, else the first on the path; empty: there is none.
func (c *checker) python() string {
	if c.Python != "" {
		return c.Python
	}
	if env := c.get("VIRTUAL_ENV"); env != "" {
		return filepath.Join(env, "bin/python")
	}
	for _, name := range []string{"python3", "python"} {
		for _, dir := range filepath.SplitList(c.get("PATH")) {
			if path := filepath.Join(dir, name); isFile(path) {
				return path
			}
		}
	}
	return ""
}

// packaged returns a file of a Python package.
func (c *checker) packaged(files ...string) string {
	for _, dir := range c.packages {
		for _, file := range files {
			if path := filepath.Join(dir, file); isFile(path) {
				return path
			}
		}
	}
	return ""
}

// findNCCL returns the paths of the NCCLs on this host and where each comes from; the one that
// counts comes first. torch brings its own and loads it even if the loader's path has another.
func (c *checker) findNCCL(ctx context.Context) []NCCL {
	if c.LibNCCL != "" {
		return []NCCL{{Path: c.LibNCCL, Where: "as --nccl says"}}
	}
	var found []NCCL
	if path := c.packaged("nvidia/nccl/lib/"+ncclFile, "torch/lib/"+ncclFile); path != "" {
		found = append(found, NCCL{Path: path, Where: "torch's, of " + c.interpreter})
	}
	if l := c.loader.Load(ctx, ncclFile); l.Path != "" &&
		!slices.ContainsFunc(found, func(n NCCL) bool { return same(n.Path, l.Path) }) {
		found = append(found, NCCL{Path: l.Path, Where: c.foundBy(l.Path)})
	}
	return found
}

// foundBy says how the loader came to a path.
func (c *checker) foundBy(path string) string {
	for _, dir := range filepath.SplitList(c.get("LD_LIBRARY_PATH")) {
		if dir != "" && same(filepath.Join(dir, filepath.Base(path)), path) {
			return "by LD_LIBRARY_PATH"
		}
	}
	return "by the loader's own paths (ldconfig -p)"
}

// namesOf returns what NCCL makes of a plugin's name, in the order in which it tries them. Since
// 2.21 a name may be a file as well.
func namesOf(prefix, name string, version probe.Version) []string {
	composed := prefix + "-" + name + ".so"
	switch {
	case name == "":
		return []string{prefix + ".so"}
	case version > 0 && version < probe.Of(2, 21, 0):
		return []string{composed}
	case strings.Contains(name, "/") || strings.HasPrefix(name, "lib") && strings.HasSuffix(name, ".so"):
		return []string{name}
	}
	return []string{name, composed}
}

// nearby returns where our library lies although the loader does not find it: in torch_mcast's
// wheel, beside this program as the repository has them, and where MCAST_LIBRARY says.
func (c *checker) nearby() string {
	dir := filepath.Dir(c.Program)
	for _, path := range []string{
		c.get("MCAST_LIBRARY"), filepath.Join(dir, pluginFile), filepath.Join(dir, "../lib", pluginFile),
		c.packaged("torch_mcast/lib/" + pluginFile),
	} {
		if path != "" && isFile(path) {
			return filepath.Clean(path)
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// same reports whether two paths are one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
