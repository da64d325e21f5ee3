// Package check says whether NCCL will use the plugin on this machine, and what stands in the way.
// It needs no GPU: it looks for the libraries as NCCL does, reads NCCL's variables and the host's
// topology, and goes by NCCL's own rules.
package check

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/nccl/machine"
	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

// Options say what to check.
type Options struct {
	Nodes    int    // of the job that is meant
	GPUs     int    // of a node, one rank each; 0: the GPUs of this host, or 1
	NVSwitch string // "yes", "no", or "unknown": whether one is found
	LibNCCL  string // path of libnccl.so.2; empty: it is looked for
	Python   string // interpreter that has torch; empty: the one of VIRTUAL_ENV or PATH

	Loader  []string // starts the child that loads libraries: see probe.Loader
	Program string   // path of this program, beside which the library may lie
	Environ []string // as os.Environ returns it
	Root    string   // of /sys, /proc and /etc
}

// Topology is the job for which was checked.
type Topology struct {
	Nodes    int    `json:"nodes"`
	GPUs     int    `json:"gpus_per_node"`
	NVSwitch string `json:"nvswitch"` // yes, no or unknown
	Found    string `json:"found"`    // GPUs and NVSwitch of this host, in words
}

// checker is a check under way.
type checker struct {
	Options
	settings
	Report
	loader      probe.Loader
	interpreter string   // Python
	packages    []string // where it looks
	machine     machine.Machine
}

// Run checks.
func Run(ctx context.Context, o Options) (Report, error) {
	c := &checker{Options: o, settings: readSettings(o.Environ, o.Root)}
	var err error
	if c.machine, err = machine.Read(o.Root); err != nil {
		return c.Report, err
	}
	c.topology()
	// The plugin's offer depends on these variables, and it is asked for its offer to the job.
	env := append(c.environ(), probe.Job(c.Topology.Nodes, c.Topology.GPUs)...)
	c.loader = probe.Loader{Command: o.Loader, Env: env}
	if c.interpreter = c.python(); c.interpreter != "" {
		c.packages = pythonPath(ctx, c.interpreter, c.environ())
	}
	c.nccl(ctx)
	c.plugin(ctx)
	c.meet()
	c.network()
	c.collnet(ctx)
	c.verdict()
	return c.Report, nil
}

// topology fills in what was not asked for with what this host has.
func (c *checker) topology() {
	t := Topology{Nodes: c.Nodes, GPUs: c.GPUs, NVSwitch: c.NVSwitch, Found: "no GPU"}
	if n := len(c.machine.GPUs); n > 0 {
		t.Found = fmt.Sprintf("%d GPUs on %d NUMA nodes", n, c.machine.Sockets())
	}
	if t.GPUs == 0 {
		t.GPUs = max(1, len(c.machine.GPUs), int(c.number("LOCAL_WORLD_SIZE", 0)))
	}
	if c.machine.NVSwitch {
		t.Found += ", an NVSwitch"
		if t.NVSwitch == "unknown" {
			t.NVSwitch = "yes"
		}
	}
	c.Topology = t
}

// nccl finds the NCCL that will be loaded.
func (c *checker) nccl(ctx context.Context) {
	found := c.findNCCL(ctx)
	if len(found) == 0 {
		c.fault(Finding{Do: "install torch with CUDA or NCCL, or say --nccl=PATH or --python=PATH"},
			"no %s: neither of torch in %s nor on the loader's path", ncclFile, cmp.Or(c.interpreter, "Python (there is none)"))
		return
	}
	n := found[0]
	c.OtherNCCL = found[1:]
	loaded := c.loader.Load(ctx, n.Path)
	wants, err := probe.Wanted(n.Path)
	switch {
	case loaded.Path == "":
		c.fault(Finding{}, "%s, %s, cannot be loaded: %s", n.Path, n.Where, loaded.Error)
		return
	case loaded.NCCL == 0:
		c.fault(Finding{}, "%s is no NCCL: it has no ncclGetVersion", n.Path)
		return
	case err != nil:
		c.fault(Finding{}, "which plugins it looks for cannot be read: %v", err)
		return
	}
	n.Version, n.Name, n.Wants = loaded.NCCL, loaded.NCCL.String(), wants
	c.NCCL = &n
	c.good("NCCL %v, %s: %s; it looks for %v", n.Version, n.Where, n.Path, wants)
	for _, other := range c.OtherNCCL {
		c.note(Finding{}, "there is another NCCL, found %s, for programs that do not bring their own: %s; --nccl checks it",
			other.Where, other.Path)
	}
}

// plugin finds the plugin that NCCL will load: ours, if all is well.
func (c *checker) plugin(ctx context.Context) {
	name, given := c.lookup("NCCL_NET_PLUGIN")
	if names := strings.Split(name, ","); len(names) > 1 {
		name = names[0]
	}
	loaded, tried := c.loadAny(ctx, namesOf("libnccl-net", name, c.version()))
	switch {
	case given && strings.EqualFold(name, "none"):
		c.fault(Finding{Set: "NCCL_NET_PLUGIN=" + pluginName}, "%s: NCCL loads no plugin", c.written("NCCL_NET_PLUGIN"))
	case name == "" && (loaded.Net == nil || loaded.Net.Name != pluginName):
		c.fault(Finding{Set: "NCCL_NET_PLUGIN=" + pluginName},
			"NCCL_NET_PLUGIN is not set: NCCL would look for libnccl-net.so alone")
	case loaded.Path == "":
		c.notFound(name, tried)
		name = "" // said already
	case loaded.Net == nil || loaded.Net.Name != pluginName:
		c.fault(Finding{Set: "NCCL_NET_PLUGIN=" + pluginName}, "%s: that is %s, not this plugin",
			c.written("NCCL_NET_PLUGIN"), loaded.Path)
	default:
		c.inspect(loaded, c.foundBy(loaded.Path))
		return
	}
	if name != "" || !given || strings.EqualFold(name, "none") {
		loaded, tried = c.loadAny(ctx, namesOf("libnccl-net", pluginName, c.version()))
		if loaded.Path != "" {
			c.inspect(loaded, c.foundBy(loaded.Path))
			return
		}
		c.notFound(pluginName, tried)
	}
	// What would be found once all is set.
	if path := c.nearby(); path != "" {
		if loaded := c.loader.Load(ctx, path); loaded.Path != "" {
			c.inspect(loaded, "not where NCCL looks")
		}
	}
}

// loadAny loads the first library that the loader finds, and says why none was.
func (c *checker) loadAny(ctx context.Context, names []string) (loaded probe.Library, tried string) {
	var why []string
	for _, name := range names {
		if loaded = c.loader.Load(ctx, name); loaded.Path != "" {
			return loaded, ""
		}
		why = append(why, loaded.Error)
	}
	return loaded, why[len(why)-1] // the last is the name that is a file's
}

// notFound says how the plugin would be found.
func (c *checker) notFound(name, why string) {
	path := c.nearby()
	f := Finding{Do: "make build in the repository makes it, pip install torch-mcast brings it"}
	if path != "" {
		f = Finding{Set: "LD_LIBRARY_PATH=" + filepath.Dir(path) + ":$LD_LIBRARY_PATH"}
	}
	c.fault(f, "the loader does not find the plugin %q: %s", name, why)
}

// inspect takes down what a plugin offers.
func (c *checker) inspect(loaded probe.Library, where string) {
	p := &Plugin{Path: loaded.Path, Where: where}
	c.Plugin = p
	var err error
	if p.Exports, err = probe.Exported(loaded.Path); err != nil {
		c.fault(Finding{}, "its symbols cannot be read: %v", err)
		return
	}
	c.good("plugin found %s: %s; it has %v", where, p.Path, p.Exports)
	if loaded.Net == nil {
		return
	}
	p.Name, p.Devices = loaded.Net.Name, loaded.Net.Devices
	if loaded.Net.Error != "" {
		c.fault(Finding{}, "NCCL would drop the plugin: %s", strings.Join(append(loaded.Log, loaded.Net.Error), "; "))
		return
	}
	if loaded.CollNet != nil {
		p.CollNet = len(loaded.CollNet.Devices)
	}
	var names []string
	for _, d := range p.Devices {
		names = append(names, fmt.Sprintf("%s (%d Mbit/s)", d.Name, d.Speed))
	}
	c.good("it offers the network devices %s, and %d for CollNet", strings.Join(names, ", "), p.CollNet)
}

// meet finds the tables by which the two will speak.
func (c *checker) meet() {
	n, p := c.NCCL, c.Plugin
	if n == nil || p == nil {
		return
	}
	m := &Meeting{probe.Meet(p.Exports.Net, n.Wants.Net), probe.Meet(p.Exports.CollNet, n.Wants.CollNet),
		probe.Meet(p.Exports.Tuner, n.Wants.Tuner), probe.Meet(p.Exports.Profiler, n.Wants.Profiler)}
	c.Meet = m
	switch {
	case m.Net == 0:
		c.fault(Finding{Do: "NCCL 2.20 or later is wanted"}, "NCCL and the plugin have no version of the network in common")
	case m.CollNet == 0 || m.Tuner == 0:
		c.note(Finding{}, "they meet on net v%d; of CollNet or tuner they have no version in common", m.Net)
	default:
		profiler := "no profiler"
		if m.Profiler > 0 {
			profiler = fmt.Sprintf("profiler v%d", m.Profiler)
		}
		c.good("they meet on net v%d, CollNet v%d, tuner v%d, %s", m.Net, m.CollNet, m.Tuner, profiler)
	}
}

// version is NCCL's; 0: not known.
func (c *checker) version() probe.Version {
	if c.NCCL == nil {
		return 0
	}
	return c.NCCL.Version
}
