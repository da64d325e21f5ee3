package world

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// bitRuns is how often TestSameBits reduces: more where the race detector does not make each run ten times as long.
var bitRuns = flag.Uint64("runs", systest.Draw[uint64](3, 10), "of TestSameBits, for each shape of hosts and way")

// TestSameBits reduces the same inputs in many runs with other timings: other networks, ranks that come late or
// compute longer, and packets that are lost. On two levels all of them have the bits of reduce.FoldNested, each
// rank for itself those of one level, directly and through a switch (Scenario.inOrder).
func TestSameBits(t *testing.T) {
	for _, shape := range [][]int{{2, 2}, {3, 1}, {4, 4, 2}} {
		for _, flat := range []bool{false, true} {
			for _, way := range []string{"direct", "switch"} {
				t.Run(fmt.Sprintf("%v/flat=%v/%s", shape, flat, way), func(t *testing.T) {
					t.Parallel()
					lost := 0
					for seed := range *bitRuns {
						s := sameSums(seed, shape, flat, way == "switch")
						require.Equal(t, flat, s.twoLevels() == nil)
						r := Play(t, s)
						require.NoError(t, r.Err, "%v\n%s", s, r.Log)
						require.Equal(t, len(s.Calls)*s.Net.Ranks, r.Calls)
						require.Equal(t, way == "switch", r.Through > 0, "%d reductions went through a switch", r.Through)
						lost += r.Lost
					}
					require.Positive(t, lost)
				})
			}
		}
	}
}

// sameSums calls for the same sums with every seed: the seed says when ranks come and what becomes of packets.
func sameSums(seed uint64, shape []int, flat, switched bool) *Scenario {
	d := draw{rand.New(rand.NewPCG(seed, 0x62697473))}
	on := dealt(shape)
	s := &Scenario{
		Seed: seed, Net: d.network(seed, len(on)), Timeout: 30 * time.Second, Fabric: "auto", Flat: flat,
		Pause: of(d, 0, d.between(0, time.Millisecond)),
	}
	s.Net.On = on
	for _, typ := range []reduce.Type{reduce.F32, reduce.BF16} {
		for _, kind := range []Kind{ReduceScatter, Reduce, Allreduce} {
			c := Call{Kind: kind, Type: typ, Root: len(on) - 1, Bytes: 12_000, Async: d.chance(0.5)}
			if kind == Allreduce { // not so few that each rank sums all by itself
				c.Bytes = (moreThanTiny/len(on)/len(on) + 64) &^ 63 * len(on)
			}
			s.Calls = append(s.Calls, c)
		}
	}
	late, slow, cable := d.IntN(len(on)), d.IntN(len(on)), d.IntN(len(on))
	s.Late = []Late{{late, d.IntN(2), d.between(0, 100*time.Millisecond)}}
	s.Slow = []Slow{{slow, d.between(0, 5*time.Millisecond)}}
	s.Faults = []Fault{{
		What: Drop, From: cable, To: Anybody, Both: true, Flow: Every&^Meeting | Slots, Share: d.Float64() * 0.02,
	}}
	if switched {
		s.Nodes, s.Ways, s.SwitchTimeout = []Node{{Workers: 2}}, [][]int{{0}}, 3*time.Second
		s.Net.Nodes = 1
	}
	return s
}
