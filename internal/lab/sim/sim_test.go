package sim

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// random runs the random scenario of a seed.
func random(seed uint64) Result {
	s := Random(seed)
	return s.Run()
}

// TestSeeds runs random scenarios; mcast-lab sim soak runs many more.
func TestSeeds(t *testing.T) {
	for part := range 4 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(part + 1); seed <= systest.Draw[uint64](100, 500); seed += 4 {
				r := random(seed)
				require.NoError(t, r.Err, r.String())
			}
		})
	}
}

// TestReplay shows that a seed decides everything, on any number of
// processors, and that a scenario survives the way through JSON.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a := random(seed)
		before := runtime.GOMAXPROCS(1)
		b := random(seed)
		runtime.GOMAXPROCS(before)
		require.Equal(t, a, b, "seed %d", seed)
		text, err := json.Marshal(a.Scenario)
		require.NoError(t, err)
		var again Scenario
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, a.Hash, again.Run().Hash, "seed %d", seed)
	}
	assert.NotEqual(t, random(1).Hash, random(2).Hash)
}

// steady is a scenario of large Allgathers on a calm network of 4 ranks, with
// the proportions of a 10 Gb/s network and a datagram of 1 KiB.
func steady(ops, chunks int) Scenario {
	us := time.Microsecond
	s := Scenario{
		Seed: 1, Depth: 4, Burst: 16,
		Core: multicast.Config{
			Size: 4, Chunk: 1024, Window: 64, Chains: 1, Subgroups: 1, Eager: 64 << 10, Arena: 256 << 10,
			EagerChunks: 256, Cutoff: 2 * time.Millisecond, Reorder: 50 * us,
		},
		Net: network.Config{Tree: fattree.Config{Hosts: 4}, Gbps: 8, Latency: 5 * us, Workers: 1, Cost: us / 2, Depth: 80},
	}
	for range ops {
		s.Ops = append(s.Ops, Op{Op: multicast.Op{Collective: wire.Allgather, Bytes: chunks * s.Core.Chunk}})
	}
	return s
}

// TestTrafficWithoutLoss holds each rank to the bandwidth optimum: K multicast
// chunks an Allgather, no request, no repair.
func TestTrafficWithoutLoss(t *testing.T) {
	for _, chains := range []int{1, 2, 4} {
		s := steady(5, 300)
		s.Calm, s.Core.Chains = true, chains
		r := s.Run()
		require.NoError(t, r.Err)
		assert.Equal(t, 5*4*300, r.Chunks)
		assert.Zero(t, r.Control[wire.Fetch])
		assert.Zero(t, r.Overflow)
	}
}

// TestSlowReceiverLosesNothing pauses ranks while others send. A queue holds
// no more than a window, so the roots of a chain must share it, however short
// their shards are.
func TestSlowReceiverLosesNothing(t *testing.T) {
	for _, c := range []struct{ ranks, chains, chunks int }{{4, 1, 10}, {4, 1, 40}, {4, 2, 300}, {16, 1, 1}, {16, 1, 7},
		{16, 3, 100}, {33, 1, 20}} {
		s := steady(6, c.chunks)
		s.Depth = 1
		s.Core.Size, s.Core.Chains, s.Core.Eager, s.Core.Arena = c.ranks, c.chains, 0, 0
		s.Core.Window, s.Net.Depth, s.Net.Tree.Hosts = 16, 16, c.ranks
		for i := range 8 {
			s.Net.Faults.Pauses = append(s.Net.Faults.Pauses,
				network.Pause{Node: i % c.ranks, At: time.Duration(1+i) * 300 * time.Microsecond, For: 20 * time.Millisecond})
		}
		r := s.Run()
		require.NoError(t, r.Err)
		assert.Zero(t, r.Overflow, "%+v: %v", c, &r)
	}
}

// TestRepairsOnlyGaps bounds what a loss of 1 % costs.
func TestRepairsOnlyGaps(t *testing.T) {
	s := steady(10, 400)
	s.Net.Faults.Loss = 0.01
	r := s.Run()
	require.NoError(t, r.Err)
	lost := 10 * 4 * 400 * 3 / 100
	assert.InDelta(t, lost, r.Stats.Repaired, float64(lost)/4, "of about %d lost chunks", lost)
	assert.Less(t, r.Control[wire.Repair], lost*5/4)
	assert.Less(t, r.Control[wire.Fetch], lost*5/4)
}

// TestDigest runs the same with digests, and shows that they notice.
func TestDigest(t *testing.T) {
	s := steady(4, 200)
	s.Core.Eager, s.Net.Faults.Loss, s.Net.Faults.Duplicate = 0, 0.01, 0.01
	bytes := s.Run()
	require.NoError(t, bytes.Err)
	s.Digest = true
	digest := s.Run()
	require.NoError(t, digest.Err)
	assert.Equal(t, bytes.Time, digest.Time)
	assert.Equal(t, bytes.Stats, digest.Stats)
	assert.Equal(t, bytes.Hash, digest.Hash)

	b := &buffers{Op: &s.Ops[0], chunks: 200, shards: 4}
	b.place(0)
	j := &Job{Scenario: &s, whole: make([]uint64, len(s.Ops))}
	whole, one := j.wholeDigest(b), j.shardDigest(b, 2)
	assert.NotEqual(t, whole, whole+one)
	b.Bytes += 1024 // the same chunks in other places
	b.place(0)
	assert.NotEqual(t, one, j.shardDigest(b, 2))
}

// TestTrains compares chunks that are trains of packets with chunks that are packets.
func TestTrains(t *testing.T) {
	s := steady(3, 256)
	s.Core.Eager, s.Core.Window, s.Digest, s.Net.Depth, s.Net.Cost = 0, 0, true, 0, 0
	packets := s.Run()
	require.NoError(t, packets.Err)
	s.Core.Chunk, s.PacketBytes = 16<<10, 1024
	trains := s.Run()
	require.NoError(t, trains.Err)
	assert.Less(t, trains.Events, packets.Events/4)
	assert.InEpsilon(t, float64(packets.Time), float64(trains.Time), 0.05)
}

// TestMarks looks at what a trace says of a run with loss.
func TestMarks(t *testing.T) {
	s := steady(2, 100)
	s.Core.Eager, s.Trace, s.Net.Faults.Loss = 0, true, 0.05
	r := s.Run()
	require.NoError(t, r.Err)
	seen := map[Phase]int{}
	for _, m := range r.Marks {
		seen[m.Phase]++
		assert.LessOrEqual(t, m.From, m.To)
		assert.GreaterOrEqual(t, m.From, r.Spans[m.Op].From)
		assert.LessOrEqual(t, m.To, r.Spans[m.Op].To)
	}
	for _, p := range []Phase{Barrier, Multicast, Receive} {
		assert.Equal(t, 2*4, seen[p], p.String())
	}
	assert.Positive(t, seen[Fetch])
	assert.Positive(t, seen[Handshake]) // it takes no time where the neighbour was first
}

// TestRestart crashes a rank in the middle; all run the script again together.
func TestRestart(t *testing.T) {
	s := steady(4, 300)
	s.Crashes = []Crash{{Rank: 2, At: 500 * time.Microsecond, Detect: time.Millisecond, Restart: true}}
	r := s.Run()
	require.NoError(t, r.Err)
	assert.Equal(t, 1, r.Restarts)
	assert.GreaterOrEqual(t, r.Ops, 4*4)
}

// TestWrongScenario wants errors that name the mistake.
func TestWrongScenario(t *testing.T) {
	for want, spoil := range map[string]func(s *Scenario){
		"0 operations":       func(s *Scenario) { s.Ops = nil },
		"4 ranks on 2 hosts": func(s *Scenario) { s.Net.Tree.Hosts = 2 },
		"set Eager to 0":     func(s *Scenario) { s.Digest = true },
		"needs Slots":        func(s *Scenario) { s.Core.Lossless = true },
		"ranks are 0 to 3":   func(s *Scenario) { s.Crashes = []Crash{{Rank: 9}} },
		"2 crashes":          func(s *Scenario) { s.Crashes = make([]Crash, 2) },
		"neither may be":     func(s *Scenario) { s.Crashes = []Crash{{At: -1}} },
		"want 1 to 32768":    func(s *Scenario) { s.Core.Size = 1<<15 + 1 },
		"chunk 0":            func(s *Scenario) { s.Core.Chunk = 0 },
		"arena of 1 bytes":   func(s *Scenario) { s.Core.Arena = 1 },
		"burst 0":            func(s *Scenario) { s.Burst = 0 },
	} {
		s := steady(1, 1)
		spoil(&s)
		require.ErrorContains(t, s.Run().Err, want)
	}
}
