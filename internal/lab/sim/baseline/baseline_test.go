package baseline

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

const (
	gbps    = 100
	latency = 500 * time.Nanosecond
	wire    = 4096 + network.Header
)

// star is a network of one switch.
func star(hosts int) network.Config {
	return network.Config{Tree: fattree.Config{Hosts: hosts}, Gbps: gbps, Latency: latency}
}

// topology returns the tree that a Config's ports are numbered by.
func topology(t *testing.T, c Config) *fattree.Tree {
	t.Helper()
	tree, err := fattree.New(c.Net.Tree)
	require.NoError(t, err)
	return tree
}

// payload returns what a port has sent of data, without headers.
func payload(c network.Counter) int64 {
	n := int64(0)
	for _, class := range []int{network.Data, network.Repair} {
		n += int64(c.Bytes[class]) - network.Header*int64(c.Packets[class])
	}
	return n
}

// packets returns how long n full packets take on a link.
func packets(n int) time.Duration { return time.Duration(float64(n*wire*8) / gbps) }

// TestTimesOnAStar compares with the closed forms: k packets a shard or
// message; a message has come one packet and two latencies after it has left.
func TestTimesOnAStar(t *testing.T) {
	const k, bytes = 32, 32 * 4096
	hop := packets(1) + 2*latency
	for _, p := range []int{2, 3, 8, 13, 16} {
		steps := time.Duration(p - 1)
		depth := time.Duration(bits.Len(uint(p - 1)))
		want := map[Algorithm]time.Duration{
			AllgatherRing:     steps * (packets(k) + hop),
			AllgatherLinear:   steps*packets(k) + hop,
			AllgatherDoubling: steps*packets(k) + depth*hop,
			ReduceScatterRing: steps * (packets(k) + hop),
			RingRing:          2*steps*packets(k) + hop,
			BroadcastChain:    steps * (packets(k) + hop),
			BroadcastGleam:    packets(k) + hop,
		}
		if p&(p-1) == 0 {
			want[BroadcastKnomial] = depth * (packets(k) + hop)
		}
		for algorithm, want := range want {
			t.Run(fmt.Sprintf("%s/%d", algorithm, p), func(t *testing.T) {
				r, err := Run(Config{Net: star(p), Algorithm: algorithm, Bytes: bytes, Segment: -1})
				require.NoError(t, err)
				require.InEpsilon(t, want, r.Time, 0.03, "is %v", r.Time)
			})
		}
	}
}

// TestPipelines: with segments of one packet a chain or ring is as fast as its links.
func TestPipelines(t *testing.T) {
	const k, p = 256, 8
	hop := packets(1) + packets(1) + 2*latency // of a message of one packet
	for algorithm, want := range map[Algorithm]time.Duration{
		BroadcastChain:    packets(k-1) + (p-1)*hop,
		AllgatherRing:     packets(k*(p-1)) + hop,
		ReduceScatterRing: packets(k*(p-1)) + hop,
		RingRing:          2*packets(k*(p-1)) + hop,
	} {
		r, err := Run(Config{Net: star(p), Algorithm: algorithm, Bytes: k * 4096, Segment: 4096})
		require.NoError(t, err, algorithm)
		require.InEpsilon(t, want, r.Time, 0.03, "%s takes %v", algorithm, r.Time)
	}
}

// TestDefaultSegment: a host passes data on without waiting for a whole message.
func TestDefaultSegment(t *testing.T) {
	hop := packets(1) + packets(1) + 2*latency
	for _, x := range []struct {
		algorithm Algorithm
		want      time.Duration
	}{
		{BroadcastChain, packets(255) + 15*hop},
		{BroadcastBinary, 2*packets(255) + 6*hop},
		{AllgatherRing, packets(256*15) + hop},
	} {
		c := Config{Net: star(16), Algorithm: x.algorithm, Bytes: 1 << 20}
		r, err := Run(c)
		require.NoError(t, err)
		require.InEpsilon(t, x.want, r.Time, 0.03, "%s takes %v", x.algorithm, r.Time)
		for _, segment := range []int{4096, 4 * 4096, 16 * 4096, c.Bytes, -1} {
			c.Segment = segment
			other, err := Run(c)
			require.NoError(t, err)
			require.GreaterOrEqual(t, other.Time, r.Time, "%s, segments of %d", x.algorithm, segment)
		}
	}
	c := Config{Net: star(16), Algorithm: BroadcastChain, Bytes: 1 << 20, Train: 8}
	train, err := Run(c)
	require.NoError(t, err)
	c.Segment = 8 * 4096
	same, err := Run(c)
	require.NoError(t, err)
	require.Equal(t, same, train, "a train is passed on whole")
}

// TestSharingRings: two rings on the same NICs take 2N(P-1)/B (Khalilov et al., SC24, appendix B).
func TestSharingRings(t *testing.T) {
	for _, p := range []int{4, 16, 64} {
		c := Config{Net: star(p), Algorithm: RingRing, Bytes: 1 << 20, Segment: 64 << 10}
		r, err := Run(c)
		require.NoError(t, err)
		require.InEpsilon(t, 2*packets(256*(p-1)), r.Time, 0.03)
		require.InDelta(t, r.Streams[0], r.Streams[1], float64(packets(270)), "one is ahead by its first shard at most")
		c.Algorithm = AllgatherRing
		alone, err := Run(c)
		require.NoError(t, err)
		require.InEpsilon(t, 2*alone.Time, r.Time, 0.03)
	}
}

// TestTrafficLaws reads the ports: what a host sends and receives is exact,
// for sizes that no segment or packet divides.
func TestTrafficLaws(t *testing.T) {
	const bytes = 100_003
	nets := map[string]func(p int) network.Config{
		"star": star,
		"tree": func(p int) network.Config {
			c := star(p)
			c.Tree.Radix = 8
			return c
		},
	}
	for name, net := range nets {
		for _, p := range []int{2, 5, 8, 24, 32} {
			for _, algorithm := range Algorithms() {
				t.Run(fmt.Sprintf("%s/%d/%s", name, p, algorithm), func(t *testing.T) {
					c := Config{Net: net(p), Algorithm: algorithm, Bytes: bytes, Segment: 30_000, K: 3, Root: p / 3}
					r, err := Run(c)
					require.NoError(t, err)
					tree := topology(t, c)
					root := 0
					for h := range p {
						sent, got := payload(r.Ports[tree.Up(h, 0)]), payload(r.Ports[tree.Ports[tree.Up(h, 0)].Reverse])
						switch algorithm {
						case AllgatherRing, AllgatherLinear, AllgatherDoubling, ReduceScatterRing:
							require.EqualValues(t, bytes*(p-1), sent)
							require.EqualValues(t, bytes*(p-1), got)
						case RingRing:
							require.EqualValues(t, 2*bytes*(p-1), sent)
							require.EqualValues(t, 2*bytes*(p-1), got)
						default:
							if h == c.Root {
								root = int(sent)
								require.Zero(t, got)
								continue
							}
							require.EqualValues(t, bytes, got)
							if algorithm == BroadcastGleam {
								require.Zero(t, sent)
							}
						}
						require.Positive(t, r.Finish[h])
						require.LessOrEqual(t, r.Finish[h], r.Time)
					}
					children := map[Algorithm]int{BroadcastChain: 1, BroadcastGleam: 1, BroadcastBinary: min(2, p-1)}[algorithm]
					if algorithm == BroadcastKnomial {
						knomial(3)(0, p, func(int) { children++ })
					}
					require.Equal(t, children*bytes, root)
				})
			}
		}
	}
}

// TestGleamCrossesEachLinkOnce: the data of a multicast take every link of its tree once.
func TestGleamCrossesEachLinkOnce(t *testing.T) {
	c := Config{Net: star(128), Algorithm: BroadcastGleam, Bytes: 100 << 10, Root: 77}
	c.Net.Tree.Radix = 8
	r, err := Run(c)
	require.NoError(t, err)
	links := 0
	for i, port := range r.Ports {
		if n := payload(port); n > 0 {
			require.EqualValues(t, c.Bytes, n, "port %d", i)
			links++
		}
	}
	tree := topology(t, c)
	switches := 0
	for node := c.Net.Tree.Hosts; node < tree.Nodes; node++ {
		if tree.Member(0, node) {
			switches++
		}
	}
	require.Equal(t, 128+switches-1, links, "a spanning tree's links, one direction each")
}

// TestTreesReachEveryoneOnce holds for every shape of tree.
func TestTreesReachEveryoneOnce(t *testing.T) {
	trees := map[string]func(int, int, func(int)){"chain": chain, "binary": binary}
	for k := 2; k < 7; k++ {
		trees[fmt.Sprint(k, "-nomial")] = knomial(k)
	}
	for name, children := range trees {
		for hosts := 1; hosts < 70; hosts++ {
			seen := make([]int, hosts)
			seen[0] = 1
			var walk func(int)
			walk = func(v int) { children(v, hosts, func(c int) { seen[c]++; walk(c) }) }
			walk(0)
			for v, n := range seen {
				require.Equal(t, 1, n, "%s of %d: rank %d", name, hosts, v)
			}
		}
	}
}

// TestTrains: coarser, with the same traffic and nearly the same time.
func TestTrains(t *testing.T) {
	for _, algorithm := range Algorithms() {
		if algorithm == BroadcastGleam {
			continue
		}
		for _, segment := range []int{-1, 64 << 10} {
			c := Config{Net: star(32), Algorithm: algorithm, Bytes: 256 << 10, Segment: segment}
			c.Net.Tree.Radix = 8
			fine, err := Run(c)
			require.NoError(t, err)
			c.Train = 64
			coarse, err := Run(c)
			require.NoError(t, err)
			// Where flows meet by chance, packets take turns and trains do not.
			tolerance := 0.05
			if slices.Contains([]Algorithm{AllgatherRing, ReduceScatterRing, RingRing, BroadcastChain}, algorithm) {
				tolerance = 0.001
			}
			require.InEpsilon(t, fine.Time, coarse.Time, tolerance, "%s: %v and %v", algorithm, fine.Time, coarse.Time)
			require.Equal(t, fine.Packets, coarse.Packets)
			require.Less(t, coarse.Events, fine.Events/8)
			for i := range fine.Ports {
				require.Equal(t, fine.Ports[i].Bytes, coarse.Ports[i].Bytes)
			}
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	c := Config{Net: star(16), Algorithm: AllgatherRing, Bytes: 50_000, Transport: SelectiveRepeat, Seed: 3}
	c.Net.Faults.Loss = 0.05
	a, err := Run(c)
	require.NoError(t, err)
	b, err := Run(c)
	require.NoError(t, err)
	require.Equal(t, a, b)
	c.Seed = 4
	b, err = Run(c)
	require.NoError(t, err)
	require.NotEqual(t, a.Hash, b.Hash)
}

// TestNoAllocationPerPacket compares runs that differ in packets only.
func TestNoAllocationPerPacket(t *testing.T) {
	for _, transport := range []Transport{Reliable, GoBackN, SelectiveRepeat} {
		var allocations, packets [2]uint64
		for i, bytes := range []int{1 << 20, 8 << 20} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := Run(Config{Net: star(4), Algorithm: AllgatherRing, Bytes: bytes, Transport: transport})
			require.NoError(t, err)
			runtime.ReadMemStats(&after)
			allocations[i], packets[i] = after.Mallocs-before.Mallocs, uint64(r.Packets)
		}
		require.Less(t, float64(allocations[1])-float64(allocations[0]), 0.01*float64(packets[1]-packets[0]), transport)
	}
}

func TestConfigErrors(t *testing.T) {
	good := Config{Net: star(4), Algorithm: AllgatherRing, Bytes: 100}
	for want, change := range map[string]func(*Config){
		`algorithm "x"; allowed are`: func(c *Config) { c.Algorithm = "x" },
		`transport "x"; allowed are`: func(c *Config) { c.Transport = "x" },
		"1 hosts; allowed are 2":     func(c *Config) { c.Net.Tree.Hosts = 1 },
		"0 bytes; at least 1":        func(c *Config) { c.Bytes = 0 },
		"K is at least 2":            func(c *Config) { c.K = 1 },
		"allowed are 0 to 3":         func(c *Config) { c.Root = 4 },
		"only reliable may":          func(c *Config) { c.Train, c.Transport = 2, GoBackN },
		"may not be negative":        func(c *Config) { c.Window = -1 },
		"negative":                   func(c *Config) { c.Packet = -1 },
		"fattree: Radix":             func(c *Config) { c.Net.Tree.Radix = 1 },
	} {
		c := good
		change(&c)
		_, err := Run(c)
		require.ErrorContains(t, err, want)
	}
}
