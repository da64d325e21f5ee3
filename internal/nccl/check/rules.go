package check

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/nccl/machine"
	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

// network checks that NCCL takes the plugin for its network.
func (c *checker) network() {
	switch text := c.get("NCCL_NET"); {
	case text == "":
		c.note(Finding{Set: "NCCL_NET=" + pluginName},
			"NCCL_NET is not set: where the plugin fails to load, NCCL takes its own Socket without a word")
	case !strings.EqualFold(text, pluginName):
		c.fault(Finding{Set: "NCCL_NET=" + pluginName}, "%s: NCCL uses that network, and CollNet only with this plugin's",
			c.written("NCCL_NET"))
	default:
		c.good("%s: NCCL uses this plugin or fails", c.written("NCCL_NET"))
	}
	if v := c.version(); v >= probe.Of(2, 28, 3) && v <= probe.Of(2, 29, 7) &&
		c.number("NCCL_NET_PLUGIN_REF_COUNT", 0) == 0 {
		c.note(Finding{Set: "NCCL_NET_PLUGIN_REF_COUNT=1"},
			"NCCL %v forgets the plugin's name when it unloads it: a second communicator fails", v)
	}
	if file := c.get("NCCL_TOPO_FILE"); file != "" && !isFile(file) {
		c.note(Finding{Set: "NCCL_TOPO_FILE="}, "%s: there is no such file, and NCCL goes on without",
			c.written("NCCL_TOPO_FILE"))
	}
	if _, err := config.Load(c.lookup, nil); err != nil {
		c.fault(Finding{Do: "mcast env lists the allowed values"}, "%v", err)
	}
	for _, warning := range config.Unknown(c.environ()) {
		c.note(Finding{}, "%s", warning)
	}
}

// collnet checks that NCCL connects CollNet and that Allgather and Reduce-Scatter go through it.
func (c *checker) collnet(ctx context.Context) {
	t := c.Topology
	if enabled := c.number("NCCL_COLLNET_ENABLE", 0); enabled != 1 {
		c.fault(Finding{Set: "NCCL_COLLNET_ENABLE=1"},
			"NCCL_COLLNET_ENABLE is not 1: NCCL keeps CollNet off unless it is asked for")
	}
	threshold := c.number("NCCL_COLLNET_NODE_THRESHOLD", 2)
	switch {
	case t.Nodes < 2:
		c.fault(Finding{Do: "say --nodes=N if there are more"},
			"one node: NCCL has no CollNet within a node, and nothing to gain from one")
	case int64(t.Nodes) < threshold:
		c.fault(Finding{Set: "NCCL_COLLNET_NODE_THRESHOLD="}, "%s: NCCL keeps CollNet off on %d nodes",
			c.written("NCCL_COLLNET_NODE_THRESHOLD"), t.Nodes)
	}
	c.devices()
	c.choice(ctx)
	c.collectives(ctx)
}

// devices checks that every GPU of a node has a CollNet device, without which NCCL takes it for
// Allreduce alone.
func (c *checker) devices() {
	t, p := c.Topology, c.Plugin
	where := fmt.Sprintf("%d nodes of %d GPUs (%s found here), NVSwitch: %s", t.Nodes, t.GPUs, t.Found, t.NVSwitch)
	if t.GPUs < 2 {
		c.good("%s: with one GPU a node CollNet needs no NVSwitch", where)
		return
	}
	if p != nil && p.Name == pluginName && p.CollNet < t.GPUs {
		c.fault(Finding{Do: "every GPU wants one of its own"}, "the plugin offers %d CollNet devices for %d GPUs a node",
			p.CollNet, t.GPUs)
	}
	switch {
	case c.version() >= probe.Of(2, 31, 0):
		c.good("%s: NCCL %v asks for none", where, c.version())
	case t.NVSwitch == "yes":
		c.good("%s", where)
	case t.NVSwitch == "no":
		c.fault(Finding{}, "%s: NCCL before 2.31 takes CollNet with several GPUs a node only where an NVSwitch joins them",
			where)
	default:
		c.fault(Finding{Do: "say --nvswitch=yes if nvidia-smi topo -m shows NV links between all of them"},
			"%s: without one, NCCL before 2.31 takes no CollNet with several GPUs a node", where)
	}
	if c.machine.Sockets() > 1 && c.get("NCCL_TOPO_FILE") == "" && !c.nearEach() {
		c.fault(Finding{
			Set: "NCCL_TOPO_FILE=/etc/mcast-topology.xml", Do: "mcast nccl topology > /etc/mcast-topology.xml, on every node",
		},
			"the GPUs are on %d NUMA nodes, and the plugin's devices are not on all of them: NCCL gives CollNet up where a "+
				"GPU has none near", c.machine.Sockets())
	}
}

// nearEach reports whether the plugin says of some device on each GPU's NUMA node that it is there.
func (c *checker) nearEach() bool {
	near := map[int]bool{}
	if c.Plugin != nil {
		for _, d := range c.Plugin.Devices {
			if d.PCIPath != "" {
				near[machine.NUMA(filepath.Join(c.Root, d.PCIPath))] = true
			}
		}
	}
	for _, g := range c.machine.GPUs {
		if !near[g.NUMA] {
			return false
		}
	}
	return true
}

// choice checks that NCCL asks our tuner, and that no variable forbids the tuner's choice.
func (c *checker) choice(ctx context.Context) {
	if v := c.get("NCCL_ALGO"); excluded(v, "collnetdirect") {
		c.fault(Finding{Set: "NCCL_ALGO="}, "%s does not allow CollNetDirect everywhere: the tuner stays out",
			c.written("NCCL_ALGO"))
	} else if v != "" && !strings.Contains(strings.ToLower(v), "ring") {
		c.note(Finding{Set: "NCCL_ALGO="}, "%s: what has no CollNet, such as a communicator that was split or gathers of "+
			"different sizes, stops with 'No algorithm/protocol available'",
			c.written("NCCL_ALGO"))
	}
	if excluded(c.get("NCCL_PROTO"), "simple") {
		c.fault(Finding{Set: "NCCL_PROTO="}, "%s leaves out Simple, the only protocol of CollNetDirect",
			c.written("NCCL_PROTO"))
	}
	c.tuner(ctx)
}

// excluded reports whether a variable of NCCL's keeps a choice out. It may name collectives and
// lists; a value that is not plainly for us counts as against, as in ncclnet/tuner.c.
func excluded(value, wanted string) bool {
	return value != "" && (strings.Contains(value, "^") || !strings.Contains(strings.ToLower(value), wanted))
}

// tuner checks that NCCL's tuner is ours. It is in the plugin's library, where NCCL looks for it last.
func (c *checker) tuner(ctx context.Context) {
	p := c.Plugin
	name := c.get("NCCL_TUNER_PLUGIN")
	if c.version() > 0 && c.version() < probe.Of(2, 21, 0) {
		if name != pluginFile {
			c.fault(Finding{Set: "NCCL_TUNER_PLUGIN=" + pluginFile},
				"NCCL %v looks for a tuner only where NCCL_TUNER_PLUGIN says", c.version())
		}
		return
	}
	if strings.EqualFold(name, "none") {
		c.fault(Finding{Set: "NCCL_TUNER_PLUGIN="}, "%s: without the plugin's tuner NCCL does not choose CollNet",
			c.written("NCCL_TUNER_PLUGIN"))
		return
	}
	loaded, _ := c.loadAny(ctx, namesOf("libnccl-tuner", name, c.version()))
	if loaded.Path == "" || p != nil && same(loaded.Path, p.Path) {
		return
	}
	said := "NCCL_TUNER_PLUGIN is not set"
	if name != "" {
		said = c.written("NCCL_TUNER_PLUGIN")
	}
	c.fault(Finding{Set: "NCCL_TUNER_PLUGIN=" + pluginFile}, "%s: NCCL takes the tuner of %s instead of the plugin's",
		said, loaded.Path)
}
