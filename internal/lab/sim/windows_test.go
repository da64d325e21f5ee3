package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// windows is an Allgather as NCCL hands it over: in windows, in the order of the ranks' slots. What
// of a window lies in a slot is a Broadcast.
func windows(ranks, slot, window int) (ops []Op) {
	for at := 0; at < ranks*slot; at += window {
		end := min(at+window, ranks*slot)
		for root := at / slot; root*slot < end; root++ {
			bytes := min(end, (root+1)*slot) - max(at, root*slot)
			ops = append(ops, Op{Op: multicast.Op{Collective: wire.Broadcast, Root: root, Bytes: bytes}})
		}
	}
	return ops
}

// overWindows is a scenario with as many in flight as NCCL has.
func overWindows(ranks int, gbps float64, ops []Op) Scenario {
	return Scenario{
		Seed: 1, Depth: 8, Burst: 16, Ops: ops,
		Core: multicast.Config{
			Size: ranks, Chunk: 8896, Chains: ranks, Subgroups: 1, Window: 128, Eager: 64 << 10, Arena: 128 << 10,
			EagerChunks: 128,
			Cutoff:      2 * time.Millisecond, Reorder: 200 * time.Microsecond,
		},
		Net: network.Config{
			Tree: fattree.Config{Hosts: ranks, Rails: 1}, Gbps: gbps, Latency: 20 * time.Microsecond,
			Queue: 2 << 20, MTU: 9000, Depth: 256, Workers: 1, RTO: 5 * time.Millisecond,
		},
	}
}

// TestWindowsFillLinks holds windows to what links allow: N*S/B in the order of slots, and nearly
// (N-1)*S/B where windows of all slots are in flight (docs/decisions/0035).
func TestWindowsFillLinks(t *testing.T) {
	const slot, gbps = 4 << 20, 0.5
	seconds := func(bytes int) float64 { return float64(8*bytes) / (gbps * 1e9) }
	for _, c := range []struct {
		ranks, window int
		most          float64 // seconds
	}{
		{4, 256 << 10, 1.10 * seconds(4*slot)},
		{4, 2 << 20, 1.10 * seconds(3*slot)},
		{4, 4 << 20, 1.10 * seconds(3*slot)},
		{8, 512 << 10, 1.10 * seconds(8*slot)},
		{8, 4 << 20, 1.10 * seconds(7*slot)},
	} {
		sc := overWindows(c.ranks, gbps, windows(c.ranks, slot, c.window))
		sc.Skew = 50 * time.Microsecond
		res := sc.Run()
		require.NoError(t, res.Err)
		require.Zero(t, res.Overflow)
		var end multicast.Time
		for _, span := range res.Spans {
			end = max(end, span.To)
		}
		t.Logf("%d ranks, windows of %d bytes: %.2f of what links allow to a ring", c.ranks, c.window,
			seconds((c.ranks-1)*slot)/end.Seconds())
		require.Less(t, end.Seconds(), c.most, "%d ranks, windows of %d bytes", c.ranks, c.window)
	}
}

// TestRecordedWindows runs what NCCL 2.30.7 was seen to hand over on 4 ranks, not registered and in
// registered buffers cut at 3,000,000 bytes, one operation behind the other, on a network that
// loses, with ranks that post late: every byte is checked.
func TestRecordedWindows(t *testing.T) {
	var ops []Op
	for _, w := range [][2]int{
		{256, 1024}, {32 << 10, 32 << 10}, {4 << 20, 256 << 10}, {5 << 20 / 4, 3_000_000}, {1_000_000, 3_000_000},
		{256, 1024},
	} {
		ops = append(ops, windows(4, w[0], w[1])...)
	}
	for seed := range systest.Draw[uint64](2, 6) {
		sc := overWindows(4, 10, ops)
		sc.Seed, sc.Skew = seed, []time.Duration{0, 100 * time.Microsecond, 10 * time.Millisecond}[seed%3]
		sc.Net.Faults.Loss = []float64{0, 0.01}[seed%2]
		res := sc.Run()
		require.NoError(t, res.Err, fmt.Sprint("seed ", seed))
		require.Equal(t, 4*len(ops), res.Ops)
	}
}
