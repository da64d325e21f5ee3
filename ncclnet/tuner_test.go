package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/ncclnet/tunertest"
)

// TestTunerRule: the tuner leaves CollNet alone unless the conditions for it are met.
func TestTunerRule(t *testing.T) {
	const large, small = 64 << 20, 64 << 10
	table := tunertest.Facts{Nodes: 3, Allgather: -1, ReduceScatter: -1}
	with := func(change func(*tunertest.Facts)) tunertest.Facts {
		f := table
		change(&f)
		return f
	}
	switched := with(func(f *tunertest.Facts) { f.Switched, f.Paired = true, true })
	direct := with(func(f *tunertest.Facts) { f.Direct = true })
	whole := with(func(f *tunertest.Facts) { f.Chunks, f.InFlight = true, 16<<20 })
	pair := with(func(f *tunertest.Facts) {
		f.Nodes, f.Chunks, f.InFlight, f.Switched, f.Paired, f.Direct = 2, true, 16<<20, true, true, true
	})
	pairs := pair
	pairs.Several = true
	set := with(func(f *tunertest.Facts) { f.Nodes, f.Allgather, f.ReduceScatter = 2, 1<<20, 0 })
	for _, c := range []struct {
		name             string
		facts            tunertest.Facts
		bytes            int
		registered       bool
		gathers, reduces bool
	}{
		{"nothing", table, large, true, false, false},
		{"a switch", switched, large, false, true, true},
		{"a switch, but nothing beside it", with(func(f *tunertest.Facts) { f.Switched = true }), large, false, false, false},
		{"a pair without a switch", with(func(f *tunertest.Facts) { f.Paired = true }), large, false, false, false},
		{"a switch, no multicast",
			with(func(f *tunertest.Facts) { f.Switched, f.Paired, f.Unicast = true, true, true }), large, true, false, false},
		{"two nodes", with(func(f *tunertest.Facts) { f.Nodes, f.Switched, f.Paired = 2, true, true }), large, false, false,
			false},
		{"a switch, small", switched, small, false, false, false},
		{"registered", direct, large, true, true, true},
		{"not registered", direct, large, false, false, false},
		{"registered, small", direct, small, true, false, false},
		{"in flight as a whole", whole, 16 << 20, false, true, false},
		{"larger than that", whole, 16<<20 + 1, false, false, false},
		{"no say in the size of windows", with(func(f *tunertest.Facts) { f.InFlight = 8 << 20 }), 8 << 20, false, false,
			false},
		{"two nodes, in flight as a whole", pair, 16 << 20, true, false, false},
		{"two nodes of several GPUs, in flight as a whole", pairs, 16 << 20, false, true, true},
		{"two nodes of several GPUs, larger", pairs, 16<<20 + 1, true, false, false},
		{"two nodes of several GPUs, no multicast",
			tunertest.Facts{
				Nodes: 2, Several: true, Unicast: true, Chunks: true, InFlight: 16 << 20, Allgather: -1, ReduceScatter: -1,
			}, 16 << 20, false, false, false},
		{"three nodes of several GPUs, in flight as a whole",
			with(func(f *tunertest.Facts) { f.Several, f.Chunks, f.InFlight = true, true, 16<<20 }), 16 << 20, false, true,
			false},
		{"settings", set, 1 << 20, false, true, false},
		{"settings, smaller", set, 1<<20 - 1, false, false, false},
	} {
		require.Equal(t, c.gathers, c.facts.Wins(false, c.bytes, c.registered), "%s: Allgather", c.name)
		require.Equal(t, c.reduces, c.facts.Wins(true, c.bytes, c.registered), "%s: Reduce-Scatter", c.name)
	}
}

func TestAllreduceRule(t *testing.T) {
	const large, small = 256<<10 + 1, 256 << 10
	require.False(t, tunertest.Facts{}.AllreduceLoses(small, false))
	require.True(t, tunertest.Facts{}.AllreduceLoses(large, false))
	require.True(t, tunertest.Facts{}.AllreduceLoses(large, true), "NCCL stages what is registered")
	require.False(t, tunertest.Facts{Direct: true}.AllreduceLoses(large, true))
	require.False(t, tunertest.Facts{Switched: true}.AllreduceLoses(large, false), "it needs no pair")
	require.True(t, tunertest.Facts{Switched: true, Unicast: true}.AllreduceLoses(small, false))
}
