package simnet

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// fastSeeds is the part of the soak that every test run does.
const fastSeeds = 500

// TestSeeds runs random scenarios; go run ./internal/simnet/soak runs many more.
func TestSeeds(t *testing.T) {
	for part := range 4 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(part + 1); seed <= fastSeeds; seed += 4 { //nolint:gosec // small
				r := Run(seed)
				require.NoError(t, r.Err, r.String())
			}
		})
	}
}

// TestReplay shows that a seed decides everything, on any number of processors.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a := Run(seed)
		before := runtime.GOMAXPROCS(1)
		b := Run(seed)
		runtime.GOMAXPROCS(before)
		require.Equal(t, a.Hash, b.Hash, "seed %d", seed)
		require.Equal(t, a, b, "seed %d", seed)
	}
	assert.NotEqual(t, Run(1).Hash, Run(2).Hash)
}

// steady is a scenario of large Allgathers on a calm network of 4 ranks, with
// the proportions of a 10 Gb/s network and a datagram of 1 KiB.
func steady(ops, chunks int) Scenario {
	us := time.Microsecond
	s := Scenario{
		Seed: 1, Depth: 4,
		Core: core.Config{
			Size: 4, Chunk: 1024, Window: 64, Chains: 1, Subgroups: 1, Eager: 64 << 10, Arena: 256 << 10,
			EagerChunks: 256, Cutoff: 2 * time.Millisecond, Reorder: 50 * us,
		},
		Net: Net{Delay: 10 * us, ControlDelay: 20 * us, Work: us / 2, Wire: us, Burst: 16, Queue: 80},
	}
	for range ops {
		s.Ops = append(s.Ops, Op{Op: core.Op{Collective: wire.Allgather, Bytes: chunks * s.Core.Chunk}})
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
	for _, c := range []struct{ ranks, chains, chunks int }{{4, 1, 10}, {4, 1, 40}, {4, 2, 300}, {16, 1, 1}, {16, 1, 7}, {16, 3, 100}, {33, 1, 20}} {
		s := steady(6, c.chunks)
		s.Depth = 1
		s.Core.Size, s.Core.Chains, s.Core.Eager, s.Core.Arena = c.ranks, c.chains, 0, 0
		s.Core.Window, s.Net.Queue = 16, 16
		for i := range 8 {
			s.Pauses = append(s.Pauses, Pause{i % c.ranks, time.Duration(1+i) * 300 * time.Microsecond, 20 * time.Millisecond})
		}
		r := s.Run()
		require.NoError(t, r.Err)
		assert.Zero(t, r.Overflow, "%+v: %v", c, &r)
	}
}

// TestRepairsOnlyGaps bounds what a loss of 1 % costs.
func TestRepairsOnlyGaps(t *testing.T) {
	s := steady(10, 400)
	s.Net.Loss = 0.01
	r := s.Run()
	require.NoError(t, r.Err)
	lost := 10 * 4 * 400 * 3 / 100
	assert.InDelta(t, lost, r.Stats.Repaired, float64(lost)/4, "of about %d lost chunks", lost)
	assert.Less(t, r.Control[wire.Repair], lost*5/4)
	t.Log(r.String())
}
