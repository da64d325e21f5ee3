package network

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// A broadcast of K packets on the tree of 188 hosts, 12 leaves and 6 spines
// crosses each host's link, and each leaf's link to its tree's spine, K times,
// and nothing else.
func TestBroadcastCounters(t *testing.T) {
	for _, lossless := range []bool{false, true} {
		n, _ := build(t, Config{
			Tree: fattree.Config{Hosts: 188, Leaves: 12, Spines: 6}, Latency: 500, Lossless: lossless, Queue: 1 << 20,
		})
		const packets = 24
		for k := range int32(packets) {
			send(n, Packet{From: 17, To: Multicast, Group: k, Bytes: 4096})
		}
		run(t, n)
		tree, total, byTree := n.Tree(), uint64(0), map[int]uint64{}
		for q, c := range n.Counters() {
			p := tree.Ports[q]
			count, bytes := c.Sum()
			require.Equal(t, count*4160, bytes)
			require.Zero(t, c.Dropped+c.Lost+c.Corrupt)
			total += count
			switch {
			case p.From == 17 || p.Tier == 0 && tree.Switch(p.From) && p.To != 17:
				require.EqualValues(t, packets, count)
			case p.Tier == 0:
				require.Zero(t, count)
			case tree.Level(p.From) == 2:
				byTree[p.From] += count
			default: // up from a leaf: only of the root
				require.True(t, count == 0 || p.From == tree.Leaf(17, 0) && count == packets/6)
			}
		}
		require.Len(t, byTree, 6)
		for _, count := range byTree {
			require.EqualValues(t, packets/6*11, count)
		}
		require.EqualValues(t, packets*(1+187+1+11), total)
	}
}

// randomConfig draws a small network.
func randomConfig(t *rapid.T) Config {
	draw := func(name string, of ...float64) float64 { return rapid.SampledFrom(of).Draw(t, name) }
	c := Config{
		Tree: rapid.SampledFrom([]fattree.Config{
			{Hosts: 5}, {Hosts: 12, Radix: 6}, {Hosts: 23, Leaves: 4, Spines: 2}, {Hosts: 17, Radix: 5},
			{Hosts: 14, Radix: 4, Tiers: 3, Rails: 2}, {Hosts: 20, Radix: 8, Oversubscription: 3},
		}).Draw(t, "tree"),
		Gbps: draw("gbps", 10, 100, 400), UplinkGbps: draw("uplink", 0, 100),
		Latency: Time(draw("latency", 0, 500, 10_000)), Workers: int(draw("workers", 1, 2, 3)),
		Cost: Time(draw("cost", 0, 100, 3000)), CostPerByte: draw("perbyte", 0, 0.05),
		Adaptive: rapid.Bool().Draw(t, "adaptive"),
	}
	c.Queue = int(draw("queue", 0, 4160, 20_000))
	c.Depth = int(draw("depth", 0, 1, 20))
	c.Lossless = rapid.Bool().Draw(t, "lossless")
	f := &c.Faults
	if rapid.Bool().Draw(t, "faults") {
		f.Loss, f.LinkLoss, f.Burst = draw("loss", 0, 0.01, 0.3), draw("linkloss", 0, 0.05), draw("burst", 0, 1, 5)
		f.Corrupt, f.Duplicate = draw("corrupt", 0, 0.1), draw("duplicate", 0, 0.1)
		f.Jitter = Time(draw("jitter", 0, 100, 100_000))
		f.Pauses = []Pause{{1, 1000, 500_000}, {2, 5000, 100}, {1, 300_000, 300_000}}
		f.Slow, f.SlowNIC = []Slow{{3, 5}}, []Slow{{4, 3}}
		f.Partitions = []Partition{{
			Hosts: []int{0, 2}, At: 20_000, For: Time(draw("partition", 0, 1e6)), Split: rapid.Bool().Draw(t, "split"),
		}}
	}
	return c
}

// load sends random packets over time.
func load(t *rapid.T, n *Network, reliable float64, multicast bool) (sent, reliables int) {
	hosts := n.Tree().Hosts
	for range rapid.IntRange(1, 300).Draw(t, "packets") {
		p := Packet{
			From: int32(rapid.IntRange(0, hosts-1).Draw(t, "from")), To: int32(rapid.IntRange(0, hosts-1).Draw(t, "to")),
			Group: int32(rapid.IntRange(0, 5).Draw(t, "group")), Bytes: int32(rapid.IntRange(0, 4096).Draw(t, "bytes")),
			Tag: uint64(sent),
		}
		if rapid.IntRange(0, 7).Draw(t, "train") == 0 {
			p.Count = 3
			p.Bytes *= 3
		}
		switch {
		case rapid.Float64Range(0, 1).Draw(t, "reliable") < reliable:
			p.Reliable, p.Class = true, Control
			reliables++
		case multicast && rapid.Bool().Draw(t, "multicast"):
			p.To = Multicast
		}
		sent++
		send(n, p)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			n.Step()
		}
	}
	return sent, reliables
}

// Every packet that is sent is received, or counted as lost somewhere, and none
// is left.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := randomConfig(t)
		c.Faults.Duplicate = 0
		n, _ := build(t, c)
		hosts := n.Tree().Hosts
		packets := uint64(0)
		for range rapid.IntRange(1, 300).Draw(t, "packets") {
			count := rapid.SampledFrom([]int32{1, 1, 4}).Draw(t, "count")
			send(n, Packet{
				From: int32(rapid.IntRange(0, hosts-1).Draw(t, "from")), To: int32(rapid.IntRange(0, hosts-1).Draw(t, "to")),
				Count: count, Bytes: count * 1000,
			})
			packets += uint64(count)
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				n.Step()
			}
		}
		run(t, n)
		require.Zero(t, n.InFlight())
		ended := uint64(0)
		for _, c := range n.Counters() {
			ended += c.Dropped + c.Lost + c.Corrupt
		}
		for h := range hosts {
			ended += n.Host(h).Received + n.Host(h).Overflow
		}
		require.Equal(t, packets, ended)
	})
}

// Each switch sends on everything that it gets: a copy of a multicast to every
// other port of its tree.
func TestConservationOfMulticast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := randomConfig(t)
		c.Faults.Duplicate = 0
		n, _ := build(t, c)
		tree := n.Tree()
		group := rapid.IntRange(0, tree.Trees()-1).Draw(t, "tree")
		for k := range rapid.IntRange(1, 200).Draw(t, "packets") {
			send(n, Packet{From: int32(k % tree.Hosts), To: Multicast, Group: int32(group), Bytes: 4096})
			for range rapid.IntRange(0, 50).Draw(t, "steps") {
				n.Step()
			}
		}
		run(t, n)
		require.Zero(t, n.InFlight())
		in, out, counters := make([]uint64, tree.Nodes), make([]uint64, tree.Nodes), n.Counters()
		for q, c := range counters {
			sent, _ := c.Sum()
			in[tree.Ports[q].To] += sent - c.Lost - c.Corrupt
			out[tree.Ports[q].From] += sent + c.Dropped
		}
		for node := range tree.Nodes {
			if tree.Switch(node) {
				copies := max(0, len(tree.Group(group, node))-1)
				require.Equal(t, in[node]*uint64(copies), out[node])
			} else {
				require.Equal(t, in[node], n.Host(node).Received+n.Host(node).Overflow)
			}
		}
	})
}

// Reliable packets arrive once and in the order of their pair, under any
// faults.
func TestReliable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := randomConfig(t)
		c.Faults.Loss = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "loss to hosts")
		n, all := build(t, c)
		_, want := load(t, n, 0.7, true)
		run(t, n)
		require.Zero(t, n.InFlight())
		require.Empty(t, n.held)
		have := 0
		for h := range n.Tree().Hosts {
			last := map[int32]uint64{}
			for _, g := range all[h].got {
				if !g.reliable {
					continue
				}
				have++
				before, ok := last[g.from]
				require.True(t, !ok || before < g.tag, "from %d to %d: %d after %d", g.from, h, g.tag, before)
				last[g.from] = g.tag
			}
		}
		require.Equal(t, want, have)
	})
}

// A lossless network drops nothing, keeps to its room and comes to an end.
func TestLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := randomConfig(t)
		c.Lossless = true
		c.Queue = rapid.SampledFrom([]int{4160, 5000, 20_000}).Draw(t, "room")
		c.Faults = Faults{Pauses: c.Faults.Pauses, Slow: c.Faults.Slow, SlowNIC: c.Faults.SlowNIC, Jitter: c.Faults.Jitter}
		n, all := build(t, c)
		hosts := n.Tree().Hosts
		want := make([]int, hosts)
		for k := range rapid.IntRange(1, 400).Draw(t, "packets") {
			p := Packet{
				From: int32(k % hosts), To: int32(rapid.IntRange(0, hosts-1).Draw(t, "to")), Group: int32(k), Bytes: 4096,
			}
			if rapid.Bool().Draw(t, "multicast") {
				p.To = Multicast
			}
			for h := range hosts {
				if int(p.To) == h || p.To == Multicast && int(p.From) != h {
					want[h]++
				}
			}
			send(n, p)
		}
		run(t, n)
		require.Zero(t, n.InFlight())
		for h := range hosts {
			require.Len(t, all[h].got, want[h], "host %d", h)
		}
		for q, c := range n.Counters() {
			require.Zero(t, c.Dropped+c.Lost)
			require.LessOrEqual(t, c.Peak, n.Queue)
			require.Zero(t, n.rooms.ports[q].used)
			require.Zero(t, n.rooms.ports[q].bytes)
		}
		require.Len(t, n.rooms.free, len(n.rooms.stays))
	})
}

// A drop-tail queue holds no more than Queue.
func TestDropTail(t *testing.T) {
	n, all := build(t, Config{Tree: star, Queue: 12_500, MTU: 1250, Latency: 500})
	for k := range int32(70) {
		send(n, Packet{From: k % 7, To: 7, Bytes: 1186})
	}
	run(t, n)
	c := n.Counters()[n.Tree().Ports[n.Tree().Up(7, 0)].Reverse]
	require.Equal(t, 12_500, c.Peak)
	require.EqualValues(t, 70, c.Packets[Data]+c.Dropped)
	require.Len(t, all[7].got, int(c.Packets[Data]))
	// Of ten rounds of seven the first finds room, the second room for four, the
	// others for the one that has left.
	require.Len(t, all[7].got, 7+4+8)
}

// A train takes as much of a drop-tail queue as its packets would, and is
// dropped as a whole.
func TestDropTailTrains(t *testing.T) {
	const packet = 4160
	for _, x := range []struct {
		name           string
		uplink         float64
		queue, count   int32
		senders        int32
		reliable       bool
		received, peak int
	}{
		{"drains as it comes", 0, 4, 32, 1, false, 1, 1},
		{"comes twice as fast as it drains", 50, 4, 32, 1, false, 0, 0},
		{"and fits", 50, 17, 32, 1, false, 1, 17}, // 16 have gone when the last comes, and half of another
		{"in the way of another", 0, 4, 32, 2, false, 1, 1},
		{"both fit", 0, 33, 32, 2, false, 2, 33},
		{"sent again no faster than it drains", 50, 4, 32, 1, true, 1, 4},
	} {
		c := Config{Tree: star, Queue: int(x.queue) * packet}
		to := int32(7)
		if x.uplink > 0 {
			c.Tree, c.UplinkGbps, to = two, x.uplink, 31
		}
		n, all := build(t, c)
		for from := range x.senders {
			send(n, Packet{From: from, To: to, Bytes: x.count * 4096, Count: x.count, Reliable: x.reliable})
		}
		run(t, n)
		require.Len(t, all[to].got, x.received, x.name)
		dropped, peak := uint64(0), 0
		for q, c := range n.Counters() {
			if n.Tree().Switch(n.Tree().Ports[q].From) {
				dropped += c.Dropped
				peak = max(peak, c.Peak)
				require.LessOrEqual(t, c.Peak, n.Queue, x.name)
			}
		}
		lost := int(x.senders) - x.received
		if x.reliable {
			lost = 1
		}
		require.EqualValues(t, lost*int(x.count), dropped, x.name)
		require.InDelta(t, x.peak*packet, peak, packet/2+1, x.name)
	}
}

// Trains are complete within a packet's time of the same packets.
func TestTrains(t *testing.T) {
	for _, tree := range []fattree.Config{star, two, big} {
		for _, uplink := range []float64{0, 40, 400} {
			for _, cost := range []Time{0, 50, 1000} {
				for _, lossless := range []bool{false, true} {
					c := Config{Tree: tree, UplinkGbps: uplink, Latency: 700, Cost: cost, Lossless: lossless}
					last := func(count, times int32) Time {
						n, all := build(t, c)
						for range times {
							send(n, Packet{To: int32(tree.Hosts) - 1, Bytes: count * 4096, Count: count})
						}
						run(t, n)
						got := all[tree.Hosts-1].got
						return got[len(got)-1].at
					}
					slowest := 100.0
					if uplink > 0 && tree.Radix > 0 {
						slowest = min(slowest, uplink)
					}
					packet := Time(4160*8/slowest) + cost + 1
					require.InDelta(t, last(1, 64), last(64, 1), float64(packet), "%+v uplink %v cost %v", tree, uplink, cost)
					require.InDelta(t, last(1, 64), last(16, 4), float64(packet))
				}
			}
		}
	}
}

// The same seed gives the same run under any GOMAXPROCS.
func TestRepeats(t *testing.T) {
	once := func(seed uint64) (uint64, Time, string) {
		c := Config{
			Tree: big, Gbps: 100, Latency: 500, Workers: 2, Cost: 300, Depth: 30, Queue: 50_000, Adaptive: true,
			Faults: Faults{Loss: 0.02, LinkLoss: 0.01, Burst: 3, Corrupt: 0.01, Duplicate: 0.01, Jitter: time.Microsecond},
		}
		n, err := New(c, seed)
		require.NoError(t, err)
		for k := range int32(500) {
			send(n, Packet{From: k % 100, To: Multicast, Group: k, Bytes: 4096})
			send(n, Packet{From: k % 100, To: k * 7 % 100, Group: k, Bytes: 4096, Reliable: true})
		}
		run(t, n)
		return n.Hash(), n.Now(), fmt.Sprint(n.Counters())
	}
	hash, at, counters := once(1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, procs := range []int{1, 2, 7} {
		runtime.GOMAXPROCS(procs)
		h, a, c := once(1)
		require.Equal(t, hash, h)
		require.Equal(t, at, a)
		require.Equal(t, counters, c)
	}
	other, _, _ := once(2)
	require.NotEqual(t, hash, other)
	// The same on any machine: a change here is a change of the model.
	require.Equal(t, "34db9cc74b5da95b", fmt.Sprintf("%x", hash))
}
