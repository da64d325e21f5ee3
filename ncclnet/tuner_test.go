package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTunerRule: the tuner leaves CollNet alone unless the conditions for it are met.
func TestTunerRule(t *testing.T) {
	const large, small = 64 << 20, 64 << 10
	table := tunerFacts{nodes: 3, allgather: -1, reduceScatter: -1}
	with := func(change func(*tunerFacts)) tunerFacts {
		f := table
		change(&f)
		return f
	}
	switched := with(func(f *tunerFacts) { f.switched = true })
	direct := with(func(f *tunerFacts) { f.direct = true })
	whole := with(func(f *tunerFacts) { f.chunks, f.inflight = true, 16<<20 })
	pair := with(func(f *tunerFacts) { f.nodes, f.chunks, f.inflight, f.switched, f.direct = 2, true, 16<<20, true, true })
	pairs := pair
	pairs.several = true
	set := with(func(f *tunerFacts) { f.nodes, f.allgather, f.reduceScatter = 2, 1<<20, 0 })
	for _, c := range []struct {
		name             string
		facts            tunerFacts
		bytes            int
		registered       bool
		gathers, reduces bool
	}{
		{"nothing", table, large, true, false, false},
		{"a switch", switched, large, false, true, true},
		{"a switch, no multicast", with(func(f *tunerFacts) { f.switched, f.unicast = true, true }), large, true, false,
			false},
		{"two nodes", with(func(f *tunerFacts) { f.nodes, f.switched = 2, true }), large, false, false, false},
		{"a switch, small", switched, small, false, false, false},
		{"registered", direct, large, true, true, true},
		{"not registered", direct, large, false, false, false},
		{"registered, small", direct, small, true, false, false},
		{"in flight as a whole", whole, 16 << 20, false, true, false},
		{"larger than that", whole, 16<<20 + 1, false, false, false},
		{"no say in the size of windows", with(func(f *tunerFacts) { f.inflight = 8 << 20 }), 8 << 20, false, false, false},
		{"two nodes, in flight as a whole", pair, 16 << 20, true, false, false},
		{"two nodes of several GPUs, in flight as a whole", pairs, 16 << 20, false, true, true},
		{"two nodes of several GPUs, larger", pairs, 16<<20 + 1, true, false, false},
		{"two nodes of several GPUs, no multicast",
			tunerFacts{
				nodes: 2, several: true, unicast: true, chunks: true, inflight: 16 << 20, allgather: -1, reduceScatter: -1,
			}, 16 << 20, false, false, false},
		{"three nodes of several GPUs, in flight as a whole",
			with(func(f *tunerFacts) { f.several, f.chunks, f.inflight = true, true, 16<<20 }), 16 << 20, false, true, false},
		{"settings", set, 1 << 20, false, true, false},
		{"settings, smaller", set, 1<<20 - 1, false, false, false},
	} {
		require.Equal(t, c.gathers, c.facts.wins(false, c.bytes, c.registered), "%s: Allgather", c.name)
		require.Equal(t, c.reduces, c.facts.wins(true, c.bytes, c.registered), "%s: Reduce-Scatter", c.name)
	}
}

func TestAllreduceRule(t *testing.T) {
	const large, small = 256<<10 + 1, 256 << 10
	require.False(t, tunerFacts{}.allreduceLoses(small, false))
	require.True(t, tunerFacts{}.allreduceLoses(large, false))
	require.True(t, tunerFacts{}.allreduceLoses(large, true), "NCCL stages what is registered")
	require.False(t, tunerFacts{direct: true}.allreduceLoses(large, true))
	require.False(t, tunerFacts{switched: true}.allreduceLoses(large, false))
	require.True(t, tunerFacts{switched: true, unicast: true}.allreduceLoses(small, false))
}
