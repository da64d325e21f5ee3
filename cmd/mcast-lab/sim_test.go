package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
)

// parseSim reads a command line as main does.
func parseSim(t *testing.T, args ...string) (*simCommand, error) {
	t.Helper()
	var c commands
	parser, err := kong.New(&c, ringHelp)
	require.NoError(t, err)
	_, err = parser.Parse(append([]string{"sim"}, args...))
	return &c.Sim, err
}

// The flags of the issue's own example have their effects.
func TestSimFlags(t *testing.T) {
	c, err := parseSim(t, "allgather", "--nodes", "1024", "--radix", "32", "--bytes", "128KiB,1M:4M", "--chains", "4",
		"--subgroups", "4", "--loss", "1e-4",
		"--latency", "2us", "--workers", "3", "--cost", "100ns", "--coarse", "8", "--seed", "7", "--rate", "400gbit")
	require.NoError(t, err)
	net, err := c.Allgather.network()
	require.NoError(t, err)
	require.Equal(t, 1024, net.Tree.Hosts)
	require.Equal(t, 32, net.Tree.Radix)
	require.InDelta(t, 1e-4, net.Faults.Loss, 0)
	require.Equal(t, 2*time.Microsecond, net.Latency)
	cases, err := c.Allgather.cases("allgather", figures.Multicast, net)
	require.NoError(t, err)
	require.Len(t, cases, 3)
	require.Equal(t, []int{128 << 10, 1 << 20, 4 << 20}, []int{cases[0].Bytes, cases[1].Bytes, cases[2].Bytes})
	for _, one := range cases {
		require.Equal(t, [5]int{4, 4, 8, 4096, 1}, [5]int{one.Chains, one.Subgroups, one.Train, one.Packet, one.Iterations})
		require.Equal(t, uint64(7), one.Seed)
	}
}

// An error about a flag names the flag and the allowed values.
func TestSimErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"allgather", "--nodes", "1"}, []string{"--nodes=1", "at least 2"}},
		{[]string{"allgather", "--loss", "1"}, []string{"--loss=1", "below 1"}},
		{[]string{"allgather", "--loss", "NaN"}, []string{"--loss", "NaN", "is no share"}},
		{[]string{"allgather", "--rate", "unlimited"}, []string{"--rate=unlimited", "such as 200gbit"}},
		{[]string{"allgather", "--algorithm", "binomial"}, []string{"binomial", "mcast, ring, linear, doubling"}},
		{[]string{"broadcast", "--algorithm", "ring"}, []string{"ring", "mcast, binomial, knomial, binary, chain, gleam"}},
		{[]string{"broadcast", "--chains=-1"}, []string{"--chains=-1", "at least 0"}},
		{[]string{"broadcast", "--subgroups", "257"}, []string{"--subgroups=257", "1 to 256"}},
		{[]string{"broadcast", "--subgroups", "0"}, []string{"--subgroups=0", "1 to 256"}},
		{[]string{"allgather", "--nodes", "32769"}, []string{"--nodes=32769", "mcast", "at most 32768"}},
		{[]string{"overlap", "--nodes", "32769"}, []string{"--nodes=32769", "at most 32768"}},
		{[]string{"allgather", "--segment", "4K"}, []string{"--segment", "other than mcast"}},
		{[]string{"overlap", "--chunk", "8K"}, []string{"--chunk"}},
		{[]string{"broadcast", "--bytes", "8:4"}, []string{"--bytes=8:4", "N <= M"}},
		{[]string{"broadcast", "--leaves", "4"}, []string{"--leaves and --spines", "both"}},
		{[]string{"broadcast", "--nodes", "100000", "--radix", "4"}, []string{"100000 hosts do not fit", "3"}},
		{[]string{"broadcast", "--bytes", "1K,2K", "--trace", "x.json"}, []string{"--trace", "one size"}},
		{[]string{"broadcast", "--algorithm", "chain", "--trace", "x.json"}, []string{"--trace", "mcast"}},
		{[]string{"overlap", "--iters", "2"}, []string{"--iters"}},
		{[]string{"windows", "--hosts", "1"}, []string{"--hosts=1", "at least 2"}},
		{[]string{"windows", "--cores=-1"}, []string{"--cores=-1", "at least 0"}},
		{[]string{"windows", "--cpu=-1"}, []string{"PerByte is -1"}},
		{[]string{"nodes", "--hosts", "1"}, []string{"--hosts=1", "at least 2"}},
		{[]string{"nodes", "--bytes", "100"}, []string{"--bytes=100", "multiple of 64"}},
		{[]string{"nodes", "--way", "mesh"}, []string{"--way=mesh", "not known"}},
		{[]string{"nodes", "--hosts", "8192", "--per-host", "8"}, []string{"--hosts=8192", "at most 32768 ranks"}},
		{[]string{"figures", "--out", t.TempDir(), "--only", "fig99"}, []string{"--only", "fig99", "fig02"}},
	} {
		s, err := parseSim(t, c.args...)
		switch {
		case err != nil: // before the command runs
		case c.args[0] == "allgather":
			err = s.Allgather.Run()
		case c.args[0] == "broadcast":
			err = s.Broadcast.Run()
		case c.args[0] == "overlap":
			err = s.Overlap.Run()
		case c.args[0] == "windows":
			err = s.Windows.Run()
		case c.args[0] == "nodes":
			err = s.Nodes.Run()
		default:
			err = s.Figures.Run()
		}
		for _, word := range c.says {
			require.ErrorContains(t, err, word, c.args)
		}
	}
	_, err := parseSim(t, "allgather", "--chunk", "3x")
	require.ErrorContains(t, err, "want bytes, such as 4096")
}

// More to do for a core takes longer, and is never faster than links allow.
func TestSimWindows(t *testing.T) {
	times := map[string]float64{}
	for _, cpu := range []string{"0", "200"} {
		s, err := parseSim(t, "windows", "--bytes", "64K", "--windows", "4", "--cpu", cpu, "--cores", "2", "--json")
		require.NoError(t, err)
		o, err := s.Windows.outcome()
		require.NoError(t, err)
		require.LessOrEqual(t, o.S, o.Law)
		times[cpu] = o.Both
	}
	require.Greater(t, times["200"], 2*times["0"])
	// 2 P^2 N bytes on two cores
	require.GreaterOrEqual(t, times["200"], 1e-6*2*16*64*1024*200/2)
}

// The printed values are the effective ones: core has no more chains than ranks, nor
// subgroups than chunks. Trains are counted as their packets.
func TestSimInEffect(t *testing.T) {
	s, err := parseSim(t, "allgather", "--nodes", "8", "--bytes", "512K", "--chains", "100", "--subgroups", "200",
		"--coarse", "4", "--loss", "0.01")
	require.NoError(t, err)
	net, err := s.Allgather.network()
	require.NoError(t, err)
	cases, err := s.Allgather.cases("allgather", figures.Multicast, net)
	require.NoError(t, err)
	o, err := cases[0].Run(nil)
	require.NoError(t, err)
	require.Equal(t, [2]int{8, 32}, [2]int{o.Chains, o.Subgroups})
	require.Positive(t, o.Lost)
	require.Positive(t, o.Again)
	require.Zero(t, o.Again%4)
	require.Zero(t, o.Lost%4)

	pair, err := figures.Pair{Bytes: 64 << 10, Net: net}.Run()
	require.NoError(t, err)
	require.Equal(t, [3]int{8, 1, 4096}, [3]int{pair.Chains, pair.Subgroups, pair.Window})
	pair, err = figures.Pair{Bytes: 64 << 10, Net: net, Chains: 1}.Run()
	require.NoError(t, err)
	require.Equal(t, [3]int{1, 1, 0}, [3]int{pair.Chains, pair.Subgroups, pair.Window})
}

// The table and the JSON tell an outcome, the trace is JSON.
func TestSimOutput(t *testing.T) {
	s, err := parseSim(t, "allgather", "--nodes", "8", "--bytes", "512K", "--loss", "0.01")
	require.NoError(t, err)
	net, err := s.Allgather.network()
	require.NoError(t, err)
	cases, err := s.Allgather.cases("allgather", figures.Multicast, net)
	require.NoError(t, err)
	cases[0].Trace = true
	o, err := cases[0].Run(nil)
	require.NoError(t, err)
	require.Positive(t, o.Lost)
	require.Positive(t, o.Again)

	var text bytes.Buffer
	require.NoError(t, (&outcomes{w: &text}).print(&o))
	for _, word := range []string{"allgather of 512KiB a rank by mcast, 8 ranks", "Gbit/s a rank", "hash " + o.Hash,
		"seed 1"} {
		require.Contains(t, text.String(), word)
	}
	text.Reset()
	require.NoError(t, (&outcomes{w: &text, json: true}).print(&o))
	var back figures.Outcome
	require.NoError(t, json.Unmarshal(text.Bytes(), &back))
	require.Equal(t, o.Hash, back.Hash)

	path := filepath.Join(t.TempDir(), "trace.json")
	s.Allgather.Trace = path
	write, err := s.Allgather.traceFile()
	require.NoError(t, err)
	require.NoError(t, write(o.Spans))
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, json.Valid(written))
	for _, phase := range []string{"barrier", "multicast", "receive", "fetch", "handshake"} {
		require.True(t, bytes.Contains(written, []byte(phase)), phase)
	}
}
