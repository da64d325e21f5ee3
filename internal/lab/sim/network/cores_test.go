package network

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// A host handles packets one after another: where its core is slower than the link, the last of K is
// through K costs after the first has come.
func TestCoreIsTheLimit(t *testing.T) {
	const packets, size = 100, 4000
	c := Config{Tree: fattree.Config{Hosts: 2}, Gbps: 100, CPU: CPU{Cost: 1000, PerByte: 0.5}}
	n, all := build(t, c)
	for range packets {
		send(n, Packet{From: 0, To: 1, Bytes: size})
	}
	run(t, n)
	const each = 1000 + size/2
	first := all[1].got[0].at // sent and received: two costs and the links
	require.GreaterOrEqual(t, first, Time(2*each))
	require.Equal(t, first+(packets-1)*each, all[1].got[packets-1].at)
}

// What a host sends takes its core before its link, so its NIC is not idle meanwhile.
func TestCoreBeforeLink(t *testing.T) {
	n, all := build(t, Config{Tree: fattree.Config{Hosts: 2}, Gbps: 100, CPU: CPU{Cost: 5000, Cores: 1}})
	send(n, Packet{From: 0, To: 1, Bytes: 4096})
	send(n, Packet{From: 0, To: 1, Bytes: 4096})
	require.Equal(t, Time(10_000), n.Backlog(0, 0))
	require.True(t, n.Step())
	require.GreaterOrEqual(t, n.Backlog(0, 0), Time(5_000))
	run(t, n)
	require.Zero(t, n.Backlog(0, 0))
	require.Len(t, all[1].got, 2)
	// One core has four packets to handle: two that leave, and two that come.
	require.Equal(t, Time(20_000), all[1].got[1].at)
}

// A host that has nothing to do waits for its turn, and then takes all that has come meanwhile.
func TestTurns(t *testing.T) {
	const turn = 1_000_000
	n, all := build(t, Config{Tree: fattree.Config{Hosts: 2}, Gbps: 100, CPU: CPU{Cost: 10, Turn: turn}})
	for range 100 {
		send(n, Packet{From: 0, To: 1, Bytes: 1000})
	}
	run(t, n)
	require.Len(t, all[1].got, 100)
	require.LessOrEqual(t, all[1].got[99].at, Time(2*turn+100_000))
	require.Greater(t, all[1].got[99].at, Time(10_000))
}

// A core takes packets as they come: what is still on its way keeps nothing waiting.
func TestCoreTakesWhatIsThere(t *testing.T) {
	n, all := build(t, Config{Tree: fattree.Config{Hosts: 3}, Gbps: 1, CPU: CPU{Cost: 1000}})
	for range 10 { // which wait in the switch's queue
		send(n, Packet{From: 0, To: 1, Bytes: 4096})
		send(n, Packet{From: 2, To: 1, Bytes: 4096})
	}
	for n.Now() < 100_000 && n.Step() {
	}
	began := n.Now()
	send(n, Packet{From: 1, To: 0, Bytes: 4096})
	require.Less(t, n.Backlog(1, 0), Time(40_000))
	run(t, n)
	require.Less(t, all[0].got[0].at-began, Time(100_000))
}

// Cores that all hosts share have the work of all: half as many take twice as long.
func TestSharedCores(t *testing.T) {
	last := func(cpu CPU) (at Time) {
		const hosts, packets = 8, 50
		n, all := build(t, Config{Tree: fattree.Config{Hosts: hosts}, Gbps: 1000, CPU: cpu})
		for range packets {
			for from := range int32(hosts) {
				send(n, Packet{From: from, To: (from + 1) % hosts, Bytes: 1000})
			}
		}
		run(t, n)
		for _, r := range all[:hosts] {
			require.Len(t, r.got, packets)
			at = max(at, r.got[packets-1].at)
		}
		return at
	}
	const each = 1000 + 1000 // ns
	for _, cores := range []int{1, 2, 4} {
		got := last(CPU{Cost: 1000, PerByte: 1, Cores: cores})
		require.InEpsilon(t, 8*50*2*each/cores, int(got), 0.01, "%d cores", cores)
	}
	require.InEpsilon(t, 50*2*each, int(last(CPU{Cost: 1000, PerByte: 1})), 0.03, "one each")
}

// A switch that is a program has costs of its own; what it passes on costs it nothing.
func TestSwitchCost(t *testing.T) {
	n, all := build(t, Config{Tree: fattree.Config{Hosts: 2}, Gbps: 100, CPU: CPU{SwitchCost: 7000, SwitchPerByte: 1}})
	leaf := n.Tree().Leaf(0, 0)
	for range 10 {
		send(n, Packet{From: 0, To: int32(leaf), Bytes: 1000})
		send(n, Packet{From: 0, To: 1, Bytes: 1000})
	}
	run(t, n)
	through := all[leaf].got
	require.Len(t, through, 10)
	require.Equal(t, through[0].at+9*8000, through[9].at)
	require.Less(t, all[1].got[9].at, Time(8000))
}

// Costs of nothing change nothing, whatever the cores: a run is the same, bit for bit.
func TestCoresWithoutCost(t *testing.T) {
	hash := func(cpu CPU) uint64 {
		n, _ := build(t, Config{
			Tree: fattree.Config{Hosts: 12, Radix: 6}, CPU: cpu, Cost: 100, Depth: 20, Queue: 20_000,
			Faults: Faults{Loss: 0.1, Jitter: 100},
		})
		for i := range int32(200) {
			send(n, Packet{From: i % 12, To: Multicast, Group: i, Bytes: 4096})
			send(n, Packet{From: i % 12, To: (i + 5) % 12, Bytes: 100, Reliable: true})
			n.Step()
		}
		run(t, n)
		return n.Hash()
	}
	require.Equal(t, hash(CPU{}), hash(CPU{Cores: 2}))
}

func TestCPUErrors(t *testing.T) {
	for _, cpu := range []CPU{
		{Cost: -1}, {SwitchCost: MaxTime + 1}, {PerByte: -1}, {SwitchPerByte: 1e7}, {Cores: -1}, {Turn: -1},
	} {
		_, err := New(Config{Tree: fattree.Config{Hosts: 2}, Gbps: 1, CPU: cpu}, 1)
		require.ErrorContains(t, err, "CPU.")
	}
}
