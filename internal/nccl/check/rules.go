package check

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

// network checks that NCCL takes the plugin for its network.
func (c *checker) network() {
	switch text := c.get("NCCL_NET"); {
	case text == "":
		c.note(Finding{Set: "NCCL_NET=" + pluginName}, "NCCL_NET is not set: where the plugin fails to load, NCCL takes its own Socket without a word")
	case !strings.EqualFold(text, pluginName):
		c.fault(Finding{Set: "NCCL_NET=" + pluginName}, "%s: NCCL uses that network, and CollNet only with this plugin's", c.written("NCCL_NET"))
	default:
		c.good("%s: NCCL uses this plugin or fails", c.written("NCCL_NET"))
	}
	if v := c.version(); v >= probe.Of(2, 28, 3) && v <= probe.Of(2, 29, 7) && c.number("NCCL_NET_PLUGIN_REF_COUNT", 0) == 0 {
		c.note(Finding{Set: "NCCL_NET_PLUGIN_REF_COUNT=1"}, "NCCL %v forgets the plugin's name when it unloads it: a second communicator fails", v)
	}
	if file := c.get("NCCL_TOPO_FILE"); file != "" && !isFile(file) {
		c.note(Finding{Set: "NCCL_TOPO_FILE="}, "%s: there is no such file, and NCCL goes on without", c.written("NCCL_TOPO_FILE"))
	}
	if _, err := config.Load(c.lookup, nil); err != nil {
		c.fault(Finding{Do: "mcast env lists what is allowed"}, "%v", err)
	}
	for _, warning := range config.Unknown(c.environ()) {
		c.note(Finding{}, "%s", warning)
	}
}

// collnet checks that NCCL connects CollNet and that Allgather and Reduce-Scatter go through it.
func (c *checker) collnet(ctx context.Context) {
	t := c.Topology
	if enabled := c.number("NCCL_COLLNET_ENABLE", 0); enabled != 1 {
		c.fault(Finding{Set: "NCCL_COLLNET_ENABLE=1"}, "NCCL_COLLNET_ENABLE is not 1: NCCL keeps CollNet off unless it is asked for")
	}
	threshold := c.number("NCCL_COLLNET_NODE_THRESHOLD", 2)
	switch {
	case t.Nodes < 2:
		c.fault(Finding{Do: "say --nodes=N if there are more"}, "one node: NCCL has no CollNet within a node, and nothing to gain from one")
	case int64(t.Nodes) < threshold:
		c.fault(Finding{Set: "NCCL_COLLNET_NODE_THRESHOLD="}, "%s: NCCL keeps CollNet off on %d nodes", c.written("NCCL_COLLNET_NODE_THRESHOLD"), t.Nodes)
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
		c.fault(Finding{Do: "every GPU wants one of its own"}, "the plugin offers %d CollNet devices for %d GPUs a node", p.CollNet, t.GPUs)
	}
	switch {
	case c.version() >= probe.Of(2, 31, 0):
		c.good("%s: NCCL %v asks for none", where, c.version())
	case t.NVSwitch == "yes":
		c.good("%s", where)
	case t.NVSwitch == "no":
		c.fault(Finding{}, "%s: NCCL before 2.31 takes CollNet with several GPUs a node only where an NVSwitch joins them", where)
	default:
		c.fault(Finding{Do: "say --nvswitch=yes if nvidia-smi topo -m shows NV links between all of them"},
			"%s: without one, NCCL before 2.31 takes no CollNet with several GPUs a node", where)
	}
	if c.machine.Sockets() > 1 && c.get("NCCL_TOPO_FILE") == "" && !c.pathsOfDevices() {
		c.fault(Finding{Set: "NCCL_TOPO_FILE=/etc/mcast-topology.xml", Do: "mcast nccl topology > /etc/mcast-topology.xml, on every node"},
			"the GPUs are on %d NUMA nodes, and the plugin's devices have no PCI address: NCCL counts them all as the first one's", c.machine.Sockets())
	}
}

// pathsOfDevices reports whether each of the plugin's devices has a place of its own on the PCI bus.
func (c *checker) pathsOfDevices() bool {
	if c.Plugin == nil {
		return false
	}
	places := map[string]bool{}
	for _, d := range c.Plugin.Devices {
		if d.PCIPath != "" {
			places[d.PCIPath] = true
		}
	}
	return len(places) >= c.Topology.GPUs
}

// choice checks that it is our tuner that NCCL asks, and that nothing forbids what it says.
func (c *checker) choice(ctx context.Context) {
	if v := c.get("NCCL_ALGO"); excluded(v, "collnetdirect") {
		c.fault(Finding{Set: "NCCL_ALGO="}, "%s does not allow CollNetDirect everywhere: the tuner stays out", c.written("NCCL_ALGO"))
	} else if v != "" && !strings.Contains(strings.ToLower(v), "ring") {
		c.note(Finding{Set: "NCCL_ALGO="}, "%s: what has no CollNet, such as a communicator that was split or gathers of different sizes, stops with 'No algorithm/protocol available'",
			c.written("NCCL_ALGO"))
	}
	if excluded(c.get("NCCL_PROTO"), "simple") {
		c.fault(Finding{Set: "NCCL_PROTO="}, "%s leaves out Simple, the only protocol of CollNetDirect", c.written("NCCL_PROTO"))
	}
	c.tuner(ctx)
}

// excluded reports whether a variable of NCCL's keeps a choice out. It may name collectives and
// lists; what is not plainly for us counts as against, as in ncclnet/tuner.c.
func excluded(value, wanted string) bool {
	return value != "" && (strings.Contains(value, "^") || !strings.Contains(strings.ToLower(value), wanted))
}

// tuner checks that NCCL's tuner is ours. It is in the plugin's library, where NCCL looks for it last.
func (c *checker) tuner(ctx context.Context) {
	p := c.Plugin
	name := c.get("NCCL_TUNER_PLUGIN")
	if c.version() > 0 && c.version() < probe.Of(2, 21, 0) {
		if name != pluginFile {
			c.fault(Finding{Set: "NCCL_TUNER_PLUGIN=" + pluginFile}, "NCCL %v looks for a tuner only where NCCL_TUNER_PLUGIN says", c.version())
		}
		return
	}
	if strings.EqualFold(name, "none") {
		c.fault(Finding{Set: "NCCL_TUNER_PLUGIN="}, "%s: without the plugin's tuner NCCL does not choose CollNet", c.written("NCCL_TUNER_PLUGIN"))
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
	c.fault(Finding{Set: "NCCL_TUNER_PLUGIN=" + pluginFile}, "%s: NCCL takes the tuner of %s instead of the plugin's", said, loaded.Path)
}

// collectives says which of the two go through CollNet, if nothing stands in the way.
func (c *checker) collectives(ctx context.Context) {
	s, err := config.Load(c.lookup, nil)
	if err != nil {
		return // said already
	}
	answers := len(s.Switches()) > 0
	for _, address := range s.Switches() {
		if err := reach(ctx, address); err != nil {
			answers = false
			c.note(Finding{Do: "mcast switch starts one"}, "MCAST_SWITCH: %v", err)
		}
	}
	if answers {
		c.good("MCAST_SWITCH=%s answers", s.Switch)
	}
	c.Collectives = append(c.Collectives, collective("Allgather", "MCAST_TUNER_ALLGATHER", s.TunerAllgather, answers), collective("Reduce-Scatter", "MCAST_TUNER_REDUCE_SCATTER", s.TunerReduceScatter, answers))
}

// switched is the size from which the tuner's table takes CollNet where a switch answers
// (ncclnet/tuner_rule.c).
const switched = 4 << 20

func collective(name, variable string, from int, answers bool) Collective {
	switch {
	case from == 0:
		return Collective{Name: name, Why: variable + "=0: never by CollNet"}
	case from < 0 && !answers:
		return Collective{Name: name, Why: "by CollNet only where that wins: with a switch that answers (MCAST_SWITCH), registered buffers, or, an Allgather, in flight as a whole"}
	case from < 0:
		from = switched
	}
	return Collective{Name: name, CollNet: true, From: from, Why: fmt.Sprintf("by CollNet from %d bytes in total", from)}
}

// reach connects to an aggregation node.
func reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// verdict puts the findings together.
func (c *checker) verdict() {
	if f := c.firstFault(); f != nil {
		c.Reason = f.Says
		for i := range c.Collectives {
			c.Collectives[i] = Collective{Name: c.Collectives[i].Name, Why: "not by CollNet"}
		}
		return
	}
	var by, otherwise []string
	for _, one := range c.Collectives {
		if one.CollNet {
			by = append(by, one.Name)
		} else {
			otherwise = append(otherwise, one.Name)
		}
	}
	c.Used = len(by) > 0
	switch {
	case !c.Used:
		c.Reason = "as its network, but neither Allgather nor Reduce-Scatter goes through CollNet"
	case len(otherwise) > 0:
		c.Reason = fmt.Sprintf("%s by CollNet, %s as NCCL chooses", by[0], otherwise[0])
	default:
		c.Reason = strings.Join(by, " and ") + " by CollNet"
	}
}
