package config

import (
	"encoding/json"
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/reference/settings.md again")

func from(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func TestDefaults(t *testing.T) {
	s, err := Load(from(nil), nil)
	require.NoError(t, err)
	require.Equal(t, Settings{
		Fabric: "auto", Multicast: "auto", Nodes: "auto", Family: "auto", TTL: 1, Timeout: 30 * time.Second,
		JoinTimeout: 5 * time.Minute, Class: "foreground", LossSeed: 1, Chains: 0, Subgroups: 1,
		Offload: "auto", Eager: 64 << 10, Cutoff: 2 * time.Millisecond, ShmChunk: 128 << 10, ShmSlots: 8, SIMD: "auto",
		Log: slog.LevelWarn, Metrics: "auto", Trace: "auto",
		SwitchMode: "reproducible", SwitchTimeout: 10 * time.Second, Checksum: "off",
		NetFabric: "auto", NetLanes: 0, NetZerocopy: "auto", NetTLS: "auto", Driver: "auto", GPUMemory: "host",
		TunerAllgather: -1, TunerReduceScatter: -1,
	}, s)
	require.Equal(t, s, Default())
}

func TestValues(t *testing.T) {
	s, err := Load(from(map[string]string{
		"MCAST_FABRIC": "udp", "MCAST_IFACE": "eth0", "MCAST_GROUP": "239.1.2.3", "MCAST_PORT": "5000", "MCAST_TTL": "0",
		"MCAST_TIMEOUT": "2s", "MCAST_LOSS": "0.01", "MCAST_CHUNK": "1472", "MCAST_WINDOW": "128K", "MCAST_RCVBUF": "1M",
		"MCAST_LOG": "off", "MCAST_RENDEZVOUS": "[::1]:4000", "MCAST_EAGER": "0", "MCAST_LOSS_SEED": "7", "MCAST_SIMD": "",
	}), map[string]string{"MCAST_FABRIC": "shm", "MCAST_PORT": ""})
	require.NoError(t, err)
	want := Default()
	want.Fabric, want.Interface, want.Group, want.Port, want.TTL = "shm", "eth0", netip.MustParseAddr("239.1.2.3"), 5000, 0
	want.Timeout, want.Loss, want.LossSeed = 2*time.Second, 0.01, 7
	want.Chunk, want.Window, want.ReceiveBuffer, want.Eager = 1472, 128<<10, 1<<20, 0
	want.Log, want.Rendezvous = LogOff, "[::1]:4000"
	require.Equal(t, want, s)
}

func TestBadValues(t *testing.T) {
	for name, values := range map[string][]string{
		"MCAST_FABRIC": {"tcp", "UDP", " udp"},
		"MCAST_IFACE":  {"eth 0", "a/b"},
		"MCAST_TOPOLOGY": {"row 2/rack7", "/rack7", "row2//rack7", "rack7/", strings.Repeat("r", 129), "rack<7>",
			"rack&7"},
		"MCAST_GROUP":          {"10.0.0.1", "224.0.0.5", "ff02::1", "239.1", "240.0.0.1"},
		"MCAST_PORT":           {"80", "65536", "-1", "x", "1e4"},
		"MCAST_ENCRYPT":        {"yes", "2", "on"},
		"MCAST_CHECKSUM":       {"crc32", "1"},
		"MCAST_TTL":            {"256", "-1", "1.5"},
		"MCAST_TIMEOUT":        {"5000", "99ms", "2h", "-1s"},
		"MCAST_JOIN_TIMEOUT":   {"1ms", "25h"},
		"MCAST_TRACE":          {"on", "run/mcast", "/" + strings.Repeat("m", 64)},
		"MCAST_METRICS":        {"on", "run/mcast", "/" + strings.Repeat("m", 64)},
		"MCAST_CLASS":          {"low", "Background"},
		"MCAST_LOSS":           {"0.91", "91%", "-0.1", "NaN", "1%%", "+Inf"},
		"MCAST_LOSS_SEED":      {"-1", "18446744073709551616"},
		"MCAST_CHAINS":         {"-1", "257"},
		"MCAST_SUBGROUPS":      {"0", "17"},
		"MCAST_CHUNK":          {"1", "64K", "1KB"},
		"MCAST_WINDOW":         {"1", "2G"},
		"MCAST_RCVBUF":         {"1", "2G", "99999999999999999999G", "9223372036854775807G"},
		"MCAST_OFFLOAD":        {"on"},
		"MCAST_EAGER":          {"2M", "-1"},
		"MCAST_CUTOFF":         {"1us", "11s"},
		"MCAST_SHM_CHUNK":      {"0", "17M"},
		"MCAST_SHM_SLOTS":      {"1", "1025"},
		"MCAST_SIMD":           {"sse"},
		"MCAST_SWITCH":         {"host", "a:1,", "a:1,b", "a:1, b:2", ","},
		"MCAST_SWITCH_MODE":    {"exact"},
		"MCAST_SWITCH_TIMEOUT": {"1ms", "6m"},
		"MCAST_LOG":            {"WARN", "trace"},
		"MCAST_RENDEZVOUS":     {"localhost", ":80", "host:0", "host:65536", "host:http"},
	} {
		for _, value := range values {
			_, err := Load(from(map[string]string{name: value}), nil)
			require.ErrorContains(t, err, name+"=", value)
			require.ErrorContains(t, err, value)
			require.ErrorContains(t, err, allowed(t, name), value)
		}
	}
}

// TestTopologyTakesItsOwnLength: characters that are longer in JSON are not allowed.
func TestTopologyTakesItsOwnLength(t *testing.T) {
	for name, taken := range map[string]bool{
		"rack7": true, "r\u00e4k/7": true, "a'b": true,
		`a"b`: false, `a\b`: false, "a<b": false, "a>b": false, "a&b": false, "a\xffb": false, "a\u2028b": false,
		"a\x00b": false,
	} {
		_, err := Load(nil, map[string]string{"MCAST_TOPOLOGY": name})
		require.Equal(t, taken, err == nil, "%q", name)
		text, err := json.Marshal(name)
		require.NoError(t, err)
		require.Equal(t, taken, len(text) == len(name)+2, "%q", name)
	}
}

func allowed(t *testing.T, name string) string {
	for _, v := range table {
		if v.Name == name {
			return v.Allowed
		}
	}
	t.Fatalf("the table has no %s", name)
	return ""
}

func TestEveryVariableHasABadValue(t *testing.T) {
	for _, v := range table {
		_, err := Load(nil, map[string]string{v.Name: "\n"})
		require.ErrorContains(t, err, v.Name)
		require.NotContains(t, v.Help, "|", "the reference is a table")
		require.NotContains(t, v.Allowed, "|")
	}
}

func TestAllBadValuesAreNamed(t *testing.T) {
	_, err := Load(from(map[string]string{"MCAST_TTL": "x"}), map[string]string{"MCAST_LOSS": "2", "MCAST_FABRIK": "udp"})
	require.EqualError(t, err, `MCAST_TTL="x" is not allowed: want a whole number from 0 to 255
MCAST_LOSS="2" is not allowed: want a share from 0 to 0.9, such as 0.01 or 1%
there is no setting MCAST_FABRIK; did you mean MCAST_FABRIC?`)
}

func TestEncryptionTakesASecret(t *testing.T) {
	vars := map[string]string{"MCAST_ENCRYPT": "1"}
	_, err := Load(from(vars), nil)
	require.ErrorContains(t, err, "MCAST_ENCRYPT=1 without MCAST_SECRET is not allowed")
	vars["MCAST_SECRET"] = strings.Repeat("s", minSecret)
	s, err := Load(from(vars), nil)
	require.NoError(t, err)
	require.True(t, s.Encrypt)
	require.Equal(t, "MCAST_ENCRYPT=1", s.Agreed())
}

func TestGroupsStayMulticast(t *testing.T) {
	vars := map[string]string{"MCAST_GROUP": "239.255.255.254", "MCAST_SUBGROUPS": "2"}
	_, err := Load(from(vars), nil)
	require.NoError(t, err)
	vars["MCAST_SUBGROUPS"] = "3"
	_, err = Load(from(vars), nil)
	require.ErrorContains(t, err, "the last group would be 240.0.0.0")
}

// TestFamily: MCAST_FAMILY goes before NCCL's variable, and a group has its own.
func TestFamily(t *testing.T) {
	for _, c := range []struct {
		vars    map[string]string
		version int
		err     string
	}{
		{nil, 0, ""},
		{map[string]string{"MCAST_FAMILY": "6"}, 6, ""},
		{map[string]string{"NCCL_SOCKET_FAMILY": "AF_INET6"}, 6, ""},
		{map[string]string{"NCCL_SOCKET_FAMILY": "AF_INET"}, 4, ""},
		{map[string]string{"NCCL_SOCKET_FAMILY": "AF_INET6", "MCAST_FAMILY": "4"}, 4, ""},
		{map[string]string{"MCAST_GROUP": "ff15::1:0"}, 6, ""},
		{map[string]string{"MCAST_GROUP": "239.1.1.1"}, 4, ""},
		{map[string]string{"MCAST_GROUP": "239.1.1.1", "MCAST_FAMILY": "6"}, 0,
			"MCAST_GROUP=239.1.1.1 with MCAST_FAMILY=6 is not allowed"},
		{map[string]string{"MCAST_GROUP": "ff02::1"}, 0, "scope wider than a link"},
		{map[string]string{"MCAST_GROUP": "::ffff:239.1.1.1"}, 0, "want"},
	} {
		s, err := Load(from(c.vars), nil)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.version, s.Version(), c.vars)
	}
}

// TestSlurmTopology: MCAST_TOPOLOGY goes before Slurm's topology, in which only switches count.
func TestSlurmTopology(t *testing.T) {
	const addr, pattern = "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"
	for _, c := range []struct {
		vars map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{addr: "s0.s4.node7", pattern: "switch.switch.node"}, "s0/s4"},
		{map[string]string{addr: "s0.s4.node7", pattern: "switch.switch.node", "MCAST_TOPOLOGY": "row2/rack7"}, "row2/rack7"},
		{map[string]string{addr: "node7", pattern: "node"}, ""},
		{map[string]string{addr: "s0.s4.node7"}, ""},
		{map[string]string{pattern: "switch.switch.node"}, ""},
		{map[string]string{addr: "s0", pattern: "switch.switch.node"}, "s0"},
		{map[string]string{addr: "s 0.s4.node7", pattern: "switch.switch.node"}, ""},
		{map[string]string{addr: ".node7", pattern: "switch.node"}, ""},
	} {
		s, err := Load(from(c.vars), nil)
		require.NoError(t, err)
		require.Equal(t, c.want, s.Topology, c.vars)
	}
}

func TestUnknown(t *testing.T) {
	require.Equal(t, []string{
		"MCAST_TIMOUT has no effect: did you mean MCAST_TIMEOUT?",
		"MCAST_WHATEVER_ELSE has no effect: the variables are listed by `mcast env`",
	}, Unknown([]string{"HOME=/", "MCAST_WHATEVER_ELSE=1", "MCAST_TIMOUT=2s", "MCAST_FABRIC=udp", "MCAST_LIBRARY=x",
		"mcast_fabric=udp"}))
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "1": 1, "4096": 4096, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "64kib": 64 << 10, "1M": 1 << 20,
		"3MiB": 3 << 20, "2G": 2 << 30, "2GiB": 2 << 30,
	} {
		got, err := ParseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseBytes(FormatBytes(got))
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
	for _, text := range []string{"", "K", "-1", "1.5M", "1KB", "1 K", "1MM", "8589934592G", "0x10", "1MiBK"} {
		_, err := ParseBytes(text)
		require.ErrorContains(t, err, "is not a size", text)
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/reference/settings.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(Markdown()), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, Markdown(), string(got), "run go generate ./internal/config")
	for _, v := range Variables() {
		require.Equal(t, 1, strings.Count(string(got), "| `"+v.Name+"` |"))
	}
}

func TestSwitches(t *testing.T) {
	s, err := Load(nil, map[string]string{"MCAST_SWITCH": "a:1,[::1]:2"})
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "[::1]:2"}, s.Switches())
	none := Default()
	require.Empty(t, none.Switches())
}

func TestSet(t *testing.T) {
	s := Default()
	require.NoError(t, s.Set("MCAST_TTL", "7"))
	require.Equal(t, 7, s.TTL)
	require.NoError(t, s.Set("MCAST_TTL", ""))
	require.Equal(t, Default(), s)
	require.EqualError(t, s.Set("MCAST_TTL", "x"), `"x" is not allowed: want a whole number from 0 to 255`)
	require.ErrorContains(t, s.Set("MCAST_SECRET", "short"), `"..." is not allowed`)
	require.ErrorContains(t, s.Set("MCAST_TTTL", "1"), "did you mean MCAST_TTL?")
}
