package group

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// TestVerbsAllocations: in steady state an Allgather allocates nothing for a datagram, sent or received: one of sixteen
// times as many allocates no more.
func TestVerbsAllocations(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four[:2], nil)
	const small, large, operations = 64 << 10, 1 << 20, 4
	// gather returns what operations of n bytes a rank have allocated, and the datagrams that they have sent and received.
	gather := func(n int) (allocations, datagrams int) {
		shards, results := make([][]byte, len(g)), make([][]byte, len(g))
		var before, after [2]monitor.Stats
		for r := range g {
			shards[r], results[r], before[r] = make([]byte, n), make([]byte, len(g)*n), g[r].Stats()
		}
		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		each(t, len(g), func(r int) error {
			for range operations {
				if err := g[r].Allgather(shards[r], results[r]); err != nil {
					return err
				}
			}
			return nil
		})
		runtime.ReadMemStats(&end)
		for r := range g {
			after[r] = g[r].Stats()
			datagrams += int(after[r].GatherSentBytes-before[r].GatherSentBytes+after[r].GatherReceivedBytes-
				before[r].GatherReceivedBytes) / 4096
		}
		return int(end.Mallocs - start.Mallocs), datagrams
	}
	gather(large)
	// What connections allocate as time passes is in some rounds and not in others.
	few, many, more := 1<<30, 1<<30, 0
	for try := 0; more == 0 || many-few > more/100; try++ {
		require.Less(t, try, tries, "%d allocations with %d datagrams more", many-few, more)
		less, sent := gather(small)
		most, all := gather(large)
		few, many, more = min(few, less), min(many, most), all-sent
		require.Greater(t, more, operations*large/4096)
		t.Logf("%d allocations with %d datagrams, %d with %d", less, sent, most, all)
	}
}
