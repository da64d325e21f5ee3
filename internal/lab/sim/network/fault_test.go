package network

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// Losses have the mean asked for, in runs of the length asked for.
func TestLossMean(t *testing.T) {
	for _, x := range []struct{ loss, burst, run float64 }{
		{0.01, 0, 1 / 0.99}, {0.3, 1, 1 / 0.7}, {0.01, 10, 10}, {0.2, 4, 4}, {0.001, 50, 50}, {0.9, 2, 9 + 1}, {1, 3, 0},
		{0, 3, 0},
	} {
		n, all := build(t, Config{Tree: fattree.Config{Hosts: 2}, Faults: Faults{Loss: x.loss, Burst: x.burst}})
		const packets = 400_000
		for k := range uint64(packets) {
			send(n, Packet{To: 1, Tag: k})
		}
		run(t, n)
		lost := float64(packets - len(all[1].got))
		runs, last := 0.0, uint64(math.MaxUint64)
		for _, g := range all[1].got {
			if g.tag != last+1 {
				runs++
			}
			last = g.tag
		}
		if x.loss == 0 || x.loss == 1 {
			require.InDelta(t, x.loss*packets, lost, 0)
			continue
		}
		// Five standard deviations of a binomial count; runs multiply its variance.
		require.InDelta(t, x.loss*packets, lost, 5*math.Sqrt(packets*x.loss*2*x.run), "%+v", x)
		require.InEpsilon(t, x.run, lost/runs, 0.2, "%+v", x)
	}
}

// A train is lost if one of its packets is.
func TestLossOfTrains(t *testing.T) {
	const trains, count, p = 20_000, 32, 0.01
	alone := math.Pow(1-p, count)
	for name, x := range map[string]struct {
		faults Faults
		arrive float64
	}{
		"loss":      {Faults{Loss: p}, alone},
		"multicast": {Faults{MulticastLoss: p}, alone},
		"corrupt":   {Faults{Corrupt: p}, alone},
		"all":       {Faults{Loss: 1}, 0},
		// It is out of a run before it, and no run begins: mean length 10.
		"burst": {Faults{Loss: p, Burst: 10}, (1 - p) * math.Pow(1-p*0.1/(1-p), count-1)},
	} {
		n, all := build(t, Config{Tree: fattree.Config{Hosts: 2}, Faults: x.faults})
		for range trains {
			send(n, Packet{To: Multicast, Bytes: count, Count: count})
		}
		run(t, n)
		require.InDelta(t, x.arrive*trains, len(all[1].got), 5*math.Sqrt(trains/4*2), name)
		c := n.Counters()[n.Tree().Ports[n.Tree().Up(1, 0)].Reverse]
		require.EqualValues(t, count*(trains-len(all[1].got)), c.Lost+c.Corrupt, name)
	}
}

func TestAnyOf(t *testing.T) {
	for _, p := range []float64{1e-12, 1e-6, 0.001, 0.5, 0.999} {
		for _, count := range []int32{1, 2, 3, 32, 1000, math.MaxInt32} {
			want := -math.Expm1(float64(count) * math.Log1p(-p))
			require.InEpsilon(t, want, float64(newChance(p).anyOf(count))/(1<<64), 1e-4, "%v of %d", p, count)
		}
	}
	require.Equal(t, always, newChance(1).anyOf(5))
	require.Zero(t, newChance(0).anyOf(5))
}

// Every receiver of a multicast loses by itself.
func TestLossOfEachReceiver(t *testing.T) {
	n, all := build(t, Config{Tree: two, Faults: Faults{Loss: 0.1}})
	for k := range uint64(10_000) {
		send(n, Packet{To: Multicast, Tag: k})
	}
	run(t, n)
	both, have := 0, map[uint64]bool{}
	for _, g := range all[5].got {
		have[g.tag] = true
	}
	for _, g := range all[6].got {
		if have[g.tag] {
			both++
		}
	}
	require.InDelta(t, 9000, len(all[5].got), 200)
	require.InDelta(t, 8100, both, 200)
}

func TestLossyLink(t *testing.T) {
	leaf := fattree.Config{Hosts: 8, Leaves: 2, Spines: 1}
	tree, err := fattree.New(leaf)
	require.NoError(t, err)
	n, all := build(t, Config{
		Tree: leaf, Faults: Faults{Lossy: []LossyLink{{tree.Root(0), tree.Leaf(7, 0), 1}, {1, tree.Leaf(1, 0), 1}}},
	})
	send(n, Packet{To: Multicast})
	run(t, n)
	for h := range 8 {
		want := 1
		if h == 0 || h == 1 || h >= 4 {
			want = 0
		}
		require.Len(t, all[h].got, want, "host %d", h)
	}
}

func TestCorruptAndDuplicate(t *testing.T) {
	n, all := build(t, Config{Tree: star, Faults: Faults{Corrupt: 0.1, Duplicate: 0.2}})
	for range 20_000 {
		send(n, Packet{To: 3})
	}
	run(t, n)
	c := n.Counters()[n.Tree().Ports[n.Tree().Up(3, 0)].Reverse]
	require.EqualValues(t, 20_000, c.Packets[Data])
	require.InDelta(t, 2000, c.Corrupt, 250)
	require.InDelta(t, 18_000*1.2, len(all[3].got), 400)
	require.EqualValues(t, len(all[3].got), n.Host(3).Received)
}

func TestJitterOvertakes(t *testing.T) {
	n, all := build(t, Config{Tree: star, Latency: 500, Cost: 10, Faults: Faults{Jitter: 50 * time.Microsecond}})
	for k := range uint64(2000) {
		send(n, Packet{To: 3, Tag: k})
	}
	run(t, n)
	require.Positive(t, inversions(all[3].got))
	for _, g := range all[3].got {
		first := Time(g.tag)*6 + 1000 // 64 bytes take 5.12 ns
		require.LessOrEqual(t, g.at, first+70*time.Microsecond)
	}
}

func inversions(all []got) (count int) {
	for i := 1; i < len(all); i++ {
		if all[i].tag < all[i-1].tag {
			count++
		}
	}
	return count
}

// Adaptive routing uses all uplinks where one path is too narrow, and packets
// overtake each other when another stream is in the way of some.
func TestAdaptive(t *testing.T) {
	last := func(adaptive bool) (Time, int) {
		n, all := build(t, Config{Tree: two, UplinkGbps: 25, Latency: 500, Adaptive: adaptive})
		for k := range uint64(400) {
			for from := int32(1); from < 28; from += 7 { // of as many leaves
				send(n, Packet{From: from, To: 30, Group: int32(k), Bytes: int32(k*uint64(from)*577) % 4097})
			}
			send(n, Packet{To: 31, Bytes: 4096, Tag: k})
		}
		run(t, n)
		got := all[31].got
		require.Len(t, got, 400)
		return got[399].at, inversions(got)
	}
	slow, none := last(false)
	fast, some := last(true)
	require.Zero(t, none)
	require.Positive(t, some)
	require.Less(t, fast*3/2, slow)
}

// A paused host takes nothing, its queue goes on filling, and its Wakes wait.
func TestPause(t *testing.T) {
	c := Config{Tree: star, Cost: 100, Depth: 11, Faults: Faults{Pauses: []Pause{{3, 10_000, 5000}, {3, 14_000, 6000}}}}
	n, all := build(t, c)
	for k := range 30 {
		n.At(Time(k)*1000, 7, uint64(k))
	}
	all[7].wake = func(tag uint64) { send(n, Packet{From: 7, To: 3, Bytes: 100, Tag: tag}) }
	n.At(12_000, 3, 0)
	n.At(12_001, 3, 0)
	run(t, n)
	require.Equal(t, []Time{20_000, 20_000}, all[3].woke)
	var tags []uint64
	for _, g := range all[3].got {
		require.False(t, g.at >= 10_000 && g.at < 20_000)
		require.GreaterOrEqual(t, g.at, Time(g.tag)*1000)
		tags = append(tags, g.tag)
	}
	// Ten come in the pause, and one more before the first of them is taken.
	require.EqualValues(t, 30, n.Host(3).Received+n.Host(3).Overflow)
	require.Zero(t, n.Host(3).Overflow)
	require.Len(t, tags, 30)
	require.Zero(t, inversions(all[3].got))

	c.Depth = 4
	n, all = build(t, c)
	all[7].wake = func(tag uint64) { send(n, Packet{From: 7, To: 3, Bytes: 100, Tag: tag}) }
	for k := range 30 {
		n.At(Time(k)*1000, 7, uint64(k))
	}
	run(t, n)
	require.EqualValues(t, 7, n.Host(3).Overflow)
	require.Equal(t, 23*100*time.Nanosecond, n.Host(3).Busy)
}

func TestDepthAndWorkers(t *testing.T) {
	for _, x := range []struct{ workers, received int }{{1, 9}, {2, 18}, {4, 36}} {
		n, all := build(t, Config{Tree: star, Cost: 1e6, Depth: 9, Workers: x.workers})
		for k := range int32(100) {
			send(n, Packet{To: 1, Group: k, Bytes: 10})
		}
		run(t, n)
		require.Len(t, all[1].got, x.received)
		require.EqualValues(t, 100-x.received, n.Host(1).Overflow)
	}
}

func TestSlow(t *testing.T) {
	n, all := build(t, Config{
		Tree: star, Latency: 500, Cost: 100, CostPerByte: 0.1,
		Faults: Faults{Slow: []Slow{{1, 3}}, SlowNIC: []Slow{{2, 4}}},
	})
	for to := range int32(3) {
		send(n, Packet{From: 5 + to, To: to, Bytes: 1186}) // 100 ns a link
	}
	run(t, n)
	require.Equal(t, Time(1200+219), all[0].got[0].at)
	require.Equal(t, Time(1200+3*218+2), all[1].got[0].at)
	require.Equal(t, Time(1500+219), all[2].got[0].at)
}

// Packets that are sent to or by a crashed host are gone; after a restart a
// flow begins anew, and nothing from before turns up.
func TestCrash(t *testing.T) {
	for _, lossless := range []bool{false, true} {
		for _, jitter := range []Time{0, 3000} {
			n, all := build(t, Config{
				Tree: two, Latency: 500, Cost: 100, Lossless: lossless, Queue: 8320, Faults: Faults{LinkLoss: 0.2, Jitter: jitter},
			})
			sending := uint64(0)
			burst := func() {
				for range 20 {
					for _, pair := range [][2]int32{{0, 9}, {9, 0}, {1, 0}} {
						sending++
						send(n, Packet{From: pair[0], To: pair[1], Reliable: true, Bytes: 1000, Tag: sending})
					}
					send(n, Packet{From: 9, To: Multicast, Bytes: 1000, Tag: sending})
				}
			}
			until := func(at Time) {
				for {
					if next, ok := n.agenda.Peek(); !ok || next > at {
						return
					}
					n.Step()
				}
			}
			n.At(40_000, 9, 1)
			n.At(300_000_000, 9, 2)
			burst()
			until(3000)
			n.Crash(9)
			before, of9 := sending, len(all[9].got)
			burst()
			until(100_000_000)
			require.Len(t, all[9].got, of9)
			n.Restart(9)
			again := sending
			burst()
			run(t, n)
			require.Zero(t, n.InFlight())
			require.Empty(t, all[9].woke)
			require.Empty(t, n.held)
			count := map[uint64]int{}
			for _, h := range []int{0, 9} {
				for _, g := range all[h].got {
					if g.reliable {
						count[g.tag]++
					}
					if h == 9 && g.at > 100_000_000 {
						require.Greater(t, g.tag, again)
					}
				}
			}
			for tag := uint64(1); tag <= sending; tag++ {
				require.LessOrEqual(t, count[tag], 1)
				if tag%3 == 0 || tag > again { // from 1 to 0, which did not crash, and after the restart
					require.Equal(t, 1, count[tag], "packet %d, crash after %d, restart after %d", tag, before, again)
				}
			}
		}
	}
}

// What a crashed host had in its queue does not turn up after its restart.
func TestCrashEmptiesQueue(t *testing.T) {
	n, all := build(t, Config{Tree: star, Cost: 1_000_000})
	all[4].wake = func(tag uint64) {
		switch tag {
		case 0:
			n.Crash(3)
		case 1:
			n.Restart(3)
		case 2:
			send(n, Packet{To: Multicast, Tag: 11})
		}
	}
	for k := range uint64(10) {
		send(n, Packet{To: Multicast, Tag: k})
	}
	n.At(2_500_000, 4, 0)
	n.At(3_500_000, 4, 1)
	n.At(30_000_000, 4, 2)
	run(t, n)
	var tags []uint64
	for _, g := range all[3].got {
		tags = append(tags, g.tag)
	}
	require.Equal(t, []uint64{0, 1, 11}, tags)
	require.EqualValues(t, 8, n.Host(3).Gone)
	require.Len(t, all[5].got, 11)
}

// A crashed switch forwards nothing; reliable packets wait for it.
func TestCrashedSwitch(t *testing.T) {
	n, all := build(t, Config{Tree: fattree.Config{Hosts: 4, Leaves: 2, Spines: 1}})
	n.Crash(n.Tree().Root(0))
	send(n, Packet{To: 3})
	send(n, Packet{To: 1})
	send(n, Packet{To: 3, Reliable: true})
	for range 20 {
		n.Step()
	}
	require.Empty(t, all[3].got)
	require.Len(t, all[1].got, 1)
	n.Restart(n.Tree().Root(0))
	run(t, n)
	require.Len(t, all[3].got, 1)
}

// Switches are nodes that packets are addressed to and that send.
func TestSwitches(t *testing.T) {
	for _, lossless := range []bool{false, true} {
		n, all := build(t,
			Config{Tree: fattree.Config{Hosts: 60, Radix: 8, Rails: 2}, Latency: 500, Lossless: lossless, Queue: 10_000})
		tree := n.Tree()
		for k := range tree.Trees() {
			root := tree.Root(k)
			send(n, Packet{From: 5, To: int32(root), Bytes: 5000, Count: 2, Reliable: true})
			send(n, Packet{From: int32(root), To: Multicast, Group: int32(k), Bytes: 100, Tag: uint64(k)})
			send(n, Packet{From: int32(root), To: int32(root)})
			send(n, Packet{From: int32(root), To: int32(tree.Parent(k, 7))})
		}
		run(t, n)
		require.Zero(t, n.InFlight())
		for k := range tree.Trees() {
			require.Len(t, all[tree.Root(k)].got, 2)
		}
		for h := range tree.Hosts {
			require.Len(t, all[h].got, tree.Trees())
		}
	}
}

func TestSelf(t *testing.T) {
	n, all := build(t, Config{Tree: two, Latency: 500, Cost: 70, Lossless: true})
	send(n, Packet{From: 3, To: 3, Bytes: 1000, Reliable: true})
	run(t, n)
	require.Equal(t, []got{{70, 3, 0, true}}, all[3].got)
}

func TestWrongConfigs(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"network: Gbps is 0, allowed are 0.001 to 1e+06": func(c *Config) { c.Gbps = 0 },
		"network: UplinkGbps is -1, allowed are 0.001 to 1e+06, and 0 for as Gbps": func(c *Config) {
			c.UplinkGbps = -1
		},
		"network: MTU is 64, allowed are 65 to 1048576, and 0 for 4160":               func(c *Config) { c.MTU = 64 },
		"network: Queue is 100 bytes, allowed are 4160 (MTU) and more, and 0 for any": func(c *Config) { c.Queue = 100 },
		"network: Workers is -1, allowed are 1 to 1024, and 0 for 1": func(c *Config) {
			c.Workers = -1
		},
		"network: CostPerByte is NaN ns, allowed are 0 to 1e6": func(c *Config) {
			c.CostPerByte = math.NaN()
		},
		"network: Depth is -1 packets, allowed are 1 and more, and 0 for any": func(c *Config) { c.Depth = -1 },
		"network: Latency is -1ns, allowed are 0s to 1h0m0s": func(c *Config) {
			c.Latency = -1
		},
		"network: Faults.Loss is 1.5, allowed are 0 to 1": func(c *Config) {
			c.Faults.Loss = 1.5
		},
		"network: Faults.Burst is 0.5 packets, allowed are 1 to 1e9, and 0 for 1": func(c *Config) {
			c.Faults.Burst = 0.5
		},
		"network: Faults.Lossy[0] is between nodes 0 and 1, allowed are nodes with a link": func(c *Config) {
			c.Faults.Lossy = []LossyLink{{0, 1, 1}}
		},
		"network: Faults.Pauses[0] is of node 8, allowed are hosts, 0 to 7": func(c *Config) {
			c.Faults.Pauses = []Pause{{8, 0, 1}}
		},
		"network: Faults.Slow[0].Factor is 0, allowed are above 0, up to 1e+06": func(c *Config) {
			c.Faults.Slow = []Slow{{1, 0}}
		},
		"network: Faults.SlowNIC[0] is of node -1, allowed are hosts, 0 to 7": func(c *Config) {
			c.Faults.SlowNIC = []Slow{{-1, 1}}
		},
		"network: Faults.Partitions[0].For is -1ns, allowed are 0s to 1h0m0s": func(c *Config) {
			c.Faults.Partitions = []Partition{{Hosts: []int{1}, For: -1}}
		},
		"network: Faults.Partitions[0] is of node 9, allowed are hosts, 0 to 7": func(c *Config) {
			c.Faults.Partitions = []Partition{{Hosts: []int{9}, For: 1}}
		},
		"fattree: Hosts is 0, allowed are 1 to 1048576": func(c *Config) { c.Tree.Hosts = 0 },
	} {
		c := Config{Tree: star, Gbps: 100}
		edit(&c)
		_, err := New(c, 1)
		require.EqualError(t, err, want)
	}
	n, _ := build(t, Config{Tree: star})
	for _, p := range []Packet{{To: 9}, {To: -2}, {From: -1}, {Bytes: -1}, {Class: 4}, {To: Multicast, Reliable: true}} {
		require.Panics(t, func() { send(n, p) })
	}
}

func TestJSON(t *testing.T) {
	c := Config{
		Tree: two, Gbps: 200, Lossless: true, RTO: 5, CostPerByte: 0.25,
		Faults: Faults{
			Lossy: []LossyLink{{1, 2, 0.5}}, Partitions: []Partition{{[]int{1, 2}, 3, 4, true}}, Pauses: []Pause{{1, 2, 3}},
		},
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var back Config
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, c, back)
}

// A host is busy with packets that have come, not with packets on their way.
func TestBusy(t *testing.T) {
	for _, jitter := range []Time{0, 1} { // on their way from the switch, or landing
		// 100 ns a link and 1 ms to its other end, 10 us to take it.
		n, all := build(t,
			Config{Tree: star, Latency: time.Millisecond, Cost: 10_000, Workers: 2, Faults: Faults{Jitter: jitter}})
		busy := map[Time]Time{}
		all[7].wake = func(tag uint64) {
			if tag > 0 {
				send(n, Packet{To: 1, Bytes: 1186})
			}
			busy[n.Now()] = n.Busy(1) - n.Now()
		}
		for _, at := range []Time{0, 5000, 5000, 100_000} { // queued while the first is taken, and a gap
			n.At(at, 7, 1)
		}
		const there = 2*time.Millisecond + 200
		at := func(at Time) Time { n.At(at, 7, 0); return at }
		early, first, before, queued, later, gap, last, over := at(there-10), at(there+10), at(there+4990), at(there+5110),
			at(there+29_000), at(there+50_000), at(there+100_010), at(there+120_000)
		run(t, n)
		near := func(want, at Time) { require.InDelta(t, max(0, want), max(0, busy[at]), 3, "at %v", at) }
		near(0, early)
		near(there+10_000-first, first)
		near(there+10_000-before, before)
		near(there+30_000-queued, queued)
		near(there+30_000-later, later)
		near(0, gap)
		near(there+110_000-last, last)
		near(0, over)
	}
}
