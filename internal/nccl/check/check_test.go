package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/nccl/nccltest"
	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

const beChild = "CHECK_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(beChild) != "" {
		if err := probe.Child(os.Stdout, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// site is a machine on which all is well: what tests change.
type site struct {
	t    *testing.T
	host *nccltest.Host
	vars map[string]string
	opts Options
	lib  string // folder of the plugin
}

var (
	tables = []string{"ncclNetPlugin_v12", "ncclCollNetPlugin_v12", "ncclTunerPlugin_v6", "ncclProfiler_v5"}
	ours   = nccltest.Plugin{Name: "mcast", Devices: []string{"eth0", "eth0.1"}, CollNet: 2, Tables: tables}
)

func newSite(t *testing.T, plugin nccltest.Plugin, version int) *site {
	s := &site{t: t, host: nccltest.NewHost(t), lib: t.TempDir()}
	plugin.Library(t, filepath.Join(s.lib, pluginFile))
	s.vars = map[string]string{
		beChild: "1", "GORACE": "atexit_sleep_ms=0", "HOME": s.host.Root, "LD_LIBRARY_PATH": s.lib,
		"NCCL_NET_PLUGIN": "mcast", "NCCL_NET": "mcast", "NCCL_COLLNET_ENABLE": "1",
		"MCAST_TUNER_ALLGATHER": "4M", "MCAST_TUNER_REDUCE_SCATTER": "8M",
	}
	if version > 0 {
		s.opts.LibNCCL = nccltest.NCCL(t, t.TempDir(), version,
			append(tables, "ncclNetPlugin_v8", "ncclCollNetPlugin_v8", "ncclTunerPlugin_v1")...)
	}
	s.opts.Nodes, s.opts.NVSwitch = 3, "unknown"
	s.opts.Loader, s.opts.Root, s.opts.Program = []string{os.Args[0]}, s.host.Root, filepath.Join(t.TempDir(), "bin/mcast")
	return s
}

func (s *site) run() Report {
	s.t.Helper()
	for name, value := range s.vars {
		s.opts.Environ = append(s.opts.Environ, name+"="+value)
	}
	r, err := Run(s.t.Context(), s.opts)
	require.NoError(s.t, err)
	return r
}

// requireFault checks that there is one fault alone, with this text and this remedy.
func requireFault(t *testing.T, r Report, says, set string) {
	t.Helper()
	var faults []Finding
	for _, f := range r.Findings {
		if f.Level == Fault {
			faults = append(faults, f)
		}
	}
	require.Len(t, faults, 1, "%+v", r.Findings)
	require.Contains(t, faults[0].Says, says)
	require.Equal(t, set, faults[0].Set)
	require.False(t, r.Used)
	require.Equal(t, faults[0].Says, r.Reason)
	for _, c := range r.Collectives {
		require.False(t, c.CollNet)
	}
}

func TestAllIsWell(t *testing.T) {
	s := newSite(t, ours, 23007)
	r := s.run()
	require.True(t, r.Used, "%+v", r.Findings)
	require.Empty(t, r.Set)
	require.Equal(t, "Allgather and Reduce-Scatter by CollNet", r.Reason)
	require.Equal(t, "2.30.7", r.NCCL.Name)
	require.Equal(t, &Meeting{12, 12, 6, 5}, r.Meet)
	require.Equal(t, filepath.Join(s.lib, pluginFile), r.Plugin.Path)
	require.Equal(t, "by LD_LIBRARY_PATH", r.Plugin.Where)
	require.Equal(t, 4<<20, r.Collectives[0].From)
	require.Equal(t, 8<<20, r.Collectives[1].From)

	var text bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.NotContains(t, text.String(), "export")
	require.True(t, strings.HasSuffix(text.String(), "NCCL will use it: Allgather and Reduce-Scatter by CollNet\n"),
		text.String())
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(b), `"used":true`)
}

// Each thing that can stand in the way, alone.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*site)
		says, set string
	}{
		"no plugin named": {func(s *site) { delete(s.vars, "NCCL_NET_PLUGIN") }, "NCCL_NET_PLUGIN is not set",
			"NCCL_NET_PLUGIN=mcast"},
		"plugins off": {func(s *site) { s.vars["NCCL_NET_PLUGIN"] = "none" },
			"NCCL_NET_PLUGIN=none: NCCL loads no plugin", "NCCL_NET_PLUGIN=mcast"},
		"another network": {func(s *site) { s.vars["NCCL_NET"] = "Socket" }, "NCCL_NET=Socket", "NCCL_NET=mcast"},
		"CollNet off": {func(s *site) { delete(s.vars, "NCCL_COLLNET_ENABLE") }, "NCCL_COLLNET_ENABLE is not 1",
			"NCCL_COLLNET_ENABLE=1"},
		"CollNet 0": {func(s *site) { s.vars["NCCL_COLLNET_ENABLE"] = "0" }, "NCCL_COLLNET_ENABLE is not 1",
			"NCCL_COLLNET_ENABLE=1"},
		"one node": {func(s *site) { s.opts.Nodes = 1 }, "one node", ""},
		"threshold of nodes": {func(s *site) { s.vars["NCCL_COLLNET_NODE_THRESHOLD"] = "4" },
			"NCCL_COLLNET_NODE_THRESHOLD=4", "NCCL_COLLNET_NODE_THRESHOLD="},
		"no NVSwitch": {func(s *site) { s.opts.GPUs, s.opts.NVSwitch = 2, "no" },
			"only where an NVSwitch joins them", ""},
		"perhaps an NVSwitch": {func(s *site) { s.opts.GPUs = 2 }, "NVSwitch: unknown", ""},
		"more GPUs": {func(s *site) { s.opts.GPUs, s.opts.NVSwitch = 3, "yes" }, "2 CollNet devices for 3 GPUs",
			""},
		"another algorithm": {func(s *site) { s.vars["NCCL_ALGO"] = "Ring" }, "NCCL_ALGO=Ring", "NCCL_ALGO="},
		"all but ours": {func(s *site) { s.vars["NCCL_ALGO"] = "^CollNetDirect" }, "NCCL_ALGO=^CollNetDirect",
			"NCCL_ALGO="},
		"another protocol": {func(s *site) { s.vars["NCCL_PROTO"] = "LL,LL128" }, "NCCL_PROTO=LL,LL128", "NCCL_PROTO="},
		"tuner off": {func(s *site) { s.vars["NCCL_TUNER_PLUGIN"] = "none" }, "NCCL_TUNER_PLUGIN=none",
			"NCCL_TUNER_PLUGIN="},
		"another tuner":        {otherTuner, "NCCL takes the tuner of", "NCCL_TUNER_PLUGIN=libnccl-net-mcast.so"},
		"a value not allowed":  {func(s *site) { s.vars["MCAST_FABRIC"] = "tin" }, `MCAST_FABRIC="tin" is not allowed`, ""},
		"two sockets":          {twoSockets, "2 NUMA nodes", "NCCL_TOPO_FILE=/etc/mcast-topology.xml"},
		"off in NCCL's file":   {inFile, "NCCL_TUNER_PLUGIN=none (in ", "NCCL_TUNER_PLUGIN="},
		"NCCL that is missing": {func(s *site) { s.opts.LibNCCL = filepath.Join(s.lib, "no.so") }, "cannot be loaded", ""},
		"NCCL that is another": {func(s *site) { s.opts.LibNCCL = filepath.Join(s.lib, pluginFile) }, "is no NCCL", ""},
		"NCCL that crashes": {func(s *site) { s.opts.LibNCCL = nccltest.Crashing(s.t, filepath.Join(s.lib, "crash.so")) },
			"loading it ended the process: SIGSEGV", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, ours, 23007)
			c.change(s)
			requireFault(t, s.run(), c.says, c.set)
		})
	}
}

func otherTuner(s *site) {
	nccltest.Plugin{Name: "other"}.Library(s.t, filepath.Join(s.lib, "libnccl-tuner.so"))
}

// NCCL needs no file where the plugin says that its devices are near the GPUs.
func TestNearEach(t *testing.T) {
	near := ours
	near.Paths = []string{"/sys/devices/pci0000:15/0000:15:01.0", "/sys/devices/pci0000:95/0000:95:01.0"}
	s := newSite(t, near, 23007)
	twoSockets(s)
	s.host.PCI("pci0000:15/0000:15:01.0", "0x15b3", "0x020000", 0)
	s.host.PCI("pci0000:95/0000:95:01.0", "0x15b3", "0x020000", 1)
	r := s.run()
	require.True(t, r.Used, r.Reason)

	s.host.File("sys/devices/pci0000:95/0000:95:01.0/numa_node", "0\n")
	s.opts.Environ = nil
	requireFault(t, s.run(), "2 NUMA nodes", "NCCL_TOPO_FILE=/etc/mcast-topology.xml")
}

// What the plugin's tuner takes where nobody has set a size.
func TestTunerRules(t *testing.T) {
	source, err := os.ReadFile("../../../ncclnet/tuner_rule.c")
	require.NoError(t, err)
	needs := map[string]need{"SWITCH": aSwitch, "REGISTERED": registered, "WHOLE": whole, "TWO_NODES": twoNodes}
	collectives := map[string]string{"ALLGATHER": allgather, "REDUCE_SCATTER": reduceScatter}
	rows := regexp.MustCompile(`\{ NCCL_(\w+), (\w+), (\d+) << 20 \}`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, rows, len(tunerRules))
	for i, row := range rows {
		mib, err := strconv.Atoi(row[3])
		require.NoError(t, err)
		require.Equal(t, tunerRules[i].collective, collectives[row[1]])
		require.Equal(t, tunerRules[i].need, needs[row[2]])
		require.Equal(t, tunerRules[i].from, mib<<20)
	}

	auto := func(version int) *site {
		s := newSite(t, ours, version)
		delete(s.vars, "MCAST_TUNER_ALLGATHER")
		delete(s.vars, "MCAST_TUNER_REDUCE_SCATTER")
		return s
	}
	r := auto(23007).run()
	require.Equal(t, "Allgather by CollNet, Reduce-Scatter as NCCL chooses", r.Reason)
	require.Contains(t, r.Collectives[0].Why, "in flight at once")

	s := auto(22005) // NCCL does not ask its tuner
	s.vars["NCCL_TUNER_PLUGIN"] = pluginFile
	s.opts.LibNCCL = nccltest.NCCL(t, t.TempDir(), 22005, "ncclNetPlugin_v8", "ncclCollNetPlugin_v8")
	r = s.run()
	require.False(t, r.Used)
	require.Contains(t, r.Reason, "neither Allgather nor Reduce-Scatter")

	s.opts.Environ = nil
	s.vars["MCAST_GPU_MEMORY"] = "coherent"
	require.Equal(t, "Allgather and Reduce-Scatter by CollNet", s.run().Reason)

	s.opts.Environ = nil
	s.opts.Nodes = 2
	require.Contains(t, s.run().Reason, "neither Allgather nor Reduce-Scatter", "on two nodes there is nothing to gain")

	several := auto(23007)
	several.opts.Nodes, several.opts.GPUs, several.opts.NVSwitch = 2, 2, "yes"
	several.vars["MCAST_COLLNET_DEVICES"] = "2"
	r = several.run()
	require.Equal(t, "Allgather and Reduce-Scatter by CollNet", r.Reason, "a ring passes more shards over a link")
	require.Contains(t, r.Collectives[1].Why, "need no switch")

	s.opts.Environ = nil
	s.opts.Nodes = 3
	s.vars["MCAST_TUNER_REDUCE_SCATTER"] = "0"
	require.Equal(t, "Allgather by CollNet, Reduce-Scatter as NCCL chooses", s.run().Reason)
}

func twoSockets(s *site) {
	s.opts.NVSwitch = "yes"
	s.host.GPU("pci0000:15/0000:15:00.0", 0)
	s.host.GPU("pci0000:95/0000:95:00.0", 1)
}

// inFile is read where the environment says nothing, and only there.
func inFile(s *site) {
	s.host.File(".nccl.conf", "#NCCL_ALGO=Ring\nNCCL_TUNER_PLUGIN=none\r\nNCCL_NET=Socket\nno variable\n")
	s.host.File("etc/nccl.conf", "NCCL_TUNER_PLUGIN=other\n")
}

// What the plugin itself refuses.
func TestPluginThatFails(t *testing.T) {
	failing := ours
	failing.Fails = "init: there is no interface that is up"
	requireFault(t, newSite(t, failing, 23007).run(),
		"NCCL would drop the plugin: init: there is no interface that is up; init: error 3", "")

	needing := ours
	needing.Needs = "nobody_has_this"
	r := newSite(t, needing, 23007).run()
	requireFault(t, r, "undefined symbol: nobody_has_this", "")
}

// A library that lies beside this program, and one of the wheel, are found and said.
func TestPluginThatIsElsewhere(t *testing.T) {
	s := newSite(t, ours, 23007)
	delete(s.vars, "LD_LIBRARY_PATH")
	requireFault(t, s.run(), `does not find the plugin "mcast": libnccl-net-mcast.so: cannot open`, "")

	s = newSite(t, ours, 23007)
	delete(s.vars, "LD_LIBRARY_PATH")
	beside := filepath.Join(filepath.Dir(s.opts.Program), "../lib")
	ours.Library(t, filepath.Join(beside, pluginFile))
	r := s.run()
	requireFault(t, r, "does not find", "LD_LIBRARY_PATH="+beside+":$LD_LIBRARY_PATH")
	require.Equal(t, "not where NCCL looks", r.Plugin.Where)
	require.Equal(t, 12, r.Meet.Net, "what would be if it were found")

	// Both are said at once where the variable is missing, too.
	s.opts.Environ = nil
	delete(s.vars, "NCCL_NET_PLUGIN")
	r = s.run()
	require.Equal(t, []string{"NCCL_NET_PLUGIN=mcast", "LD_LIBRARY_PATH=" + beside + ":$LD_LIBRARY_PATH"}, r.Set)
	var text bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), "      export NCCL_NET_PLUGIN=mcast\n")
}

// torch's NCCL counts before the loader's, and the plugin of a wheel is found.
func TestPython(t *testing.T) {
	s := newSite(t, ours, 0)
	delete(s.vars, "LD_LIBRARY_PATH")
	packages := t.TempDir()
	torchs := nccltest.NCCL(t, filepath.Join(packages, "nvidia/nccl/lib"), 22707, tables...)
	ours.Library(t, filepath.Join(packages, "torch_mcast/lib", pluginFile))
	python := filepath.Join(t.TempDir(), "bin/python")
	require.NoError(t, os.MkdirAll(filepath.Dir(python), 0o755))
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\necho '[\"\", \""+packages+"\"]'\n"), 0o755))
	s.vars["VIRTUAL_ENV"] = filepath.Dir(filepath.Dir(python))
	r := s.run()
	require.Equal(t, torchs, r.NCCL.Path)
	require.Equal(t, "torch's, of "+python, r.NCCL.Where)
	requireFault(t, r, "does not find", "LD_LIBRARY_PATH="+filepath.Join(packages, "torch_mcast/lib")+":$LD_LIBRARY_PATH")

	s.opts.Environ = nil
	s.vars["LD_LIBRARY_PATH"] = s.lib
	other := nccltest.NCCL(t, s.lib, 23007, tables...)
	r = s.run()
	require.True(t, r.Used, r.Reason)
	require.Equal(t, "2.27.7", r.NCCL.Name)
	require.Equal(t, []NCCL{{Path: other, Where: "by LD_LIBRARY_PATH"}}, r.OtherNCCL)

	s.opts.Environ = nil
	delete(s.vars, "VIRTUAL_ENV")
	r = s.run()
	require.Equal(t, other, r.NCCL.Path, "without a Python the loader's counts")
}

// What differs by version.
func TestVersions(t *testing.T) {
	s := newSite(t, ours, 22005)
	requireFault(t, s.run(), "NCCL 2.20.5 looks for a tuner only where", "NCCL_TUNER_PLUGIN=libnccl-net-mcast.so")
	s.opts.Environ = nil
	s.vars["NCCL_TUNER_PLUGIN"] = pluginFile
	require.True(t, s.run().Used)
	require.Equal(t, []string{"libnccl-net-mcast.so"}, namesOf("libnccl-net", "mcast", probe.Of(2, 20, 5)))
	require.Equal(t, []string{"mcast", "libnccl-net-mcast.so"}, namesOf("libnccl-net", "mcast", probe.Of(2, 21, 5)))
	require.Equal(t, []string{"/x/y.so"}, namesOf("libnccl-net", "/x/y.so", 0))
	require.Equal(t, []string{"libx.so"}, namesOf("libnccl-net", "libx.so", 0))
	require.Equal(t, []string{"libnccl-net.so"}, namesOf("libnccl-net", "", 0))

	r := newSite(t, ours, 22809).run()
	require.Equal(t, []string{"NCCL_NET_PLUGIN_REF_COUNT=1"}, r.Set)
	require.True(t, r.Used, "one communicator works")

	for _, version := range []int{23102, 23203} {
		s = newSite(t, ours, version)
		s.opts.GPUs, s.opts.NVSwitch = 2, "no"
		r = s.run()
		require.True(t, r.Used, "from 2.31 on NCCL asks for no NVSwitch")
		require.Empty(t, r.Set, "and it keeps the plugin's name")
	}

	none := nccltest.Plugin{Name: "mcast", Devices: []string{"eth0"}, CollNet: 1}
	s = newSite(t, none, 0)
	s.opts.LibNCCL = nccltest.NCCL(t, t.TempDir(), 24000, "ncclNetPlugin_v20")
	requireFault(t, s.run(), "no version of the network in common", "")
}

// What the host shows of GPUs and NVSwitches is taken for the job's.
func TestTopology(t *testing.T) {
	s := newSite(t, ours, 23007)
	s.host.GPU("pci0000:15/0000:15:00.0", 0)
	s.host.GPU("pci0000:15/0000:16:00.0", 0)
	s.host.NVSwitch("pci0000:15/0000:1f:00.0")
	r := s.run()
	require.True(t, r.Used, r.Reason)
	require.Equal(t, Topology{Nodes: 3, GPUs: 2, NVSwitch: "yes", Found: "2 GPUs on 1 NUMA nodes, an NVSwitch"},
		r.Topology)
}

// A switch that answers, and one that does not.
func TestSwitch(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := ln.Addr().String()
	s := newSite(t, ours, 23007)
	s.vars["MCAST_SWITCH"], s.vars["MCAST_TUNER_REDUCE_SCATTER"] = address, "auto"
	r := s.run()
	require.Contains(t, r.Findings[len(r.Findings)-1].Says, address+" answers")
	require.Contains(t, r.Collectives[1].Why, "with the switch, on two communicators of the same ranks")
	require.NoError(t, ln.Close())
	s.opts.Environ = nil
	r = s.run()
	require.Equal(t, Note, r.Findings[len(r.Findings)-1].Level)
	require.Contains(t, r.Findings[len(r.Findings)-1].Says, "connection refused")
	require.False(t, r.Collectives[1].CollNet)

	s.opts.Environ, s.opts.GPUs, s.opts.NVSwitch = nil, 2, "yes"
	requireFault(t, s.run(), "with several GPUs a node CollNet's connect fails then", "MCAST_SWITCH=")
}
