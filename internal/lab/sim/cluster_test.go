package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// gather is an Allgather of 128 KiB a rank over a fat tree at 200 Gbit/s.
func gather(hosts, radix, chains, coarse int) Scenario {
	s := Cluster(network.Config{
		Tree: fattree.Config{Hosts: hosts, Radix: radix}, Gbps: 200, Latency: time.Microsecond, Workers: 1,
	}, multicast.Op{Collective: wire.Allgather, Bytes: 128 << 10}, 1)
	s.Core.Chains = chains
	if coarse > 1 {
		s.Coarse(coarse)
	}
	return s
}

// TestCoarse holds trains against packets, where both run: the same bytes on
// every kind of link, and the same time but for a train's length.
func TestCoarse(t *testing.T) {
	for _, chains := range []int{1, 4} {
		fine, coarse := gather(128, 16, chains, 1), gather(128, 16, chains, 8)
		fine.Digest, coarse.Digest = true, true
		a, b := fine.Run(), coarse.Run()
		require.NoError(t, a.Err)
		require.NoError(t, b.Err)
		assert.InEpsilon(t, float64(a.Spans[0].To), float64(b.Spans[0].To), 0.05, "%d chains", chains)
		assert.Less(t, b.Events, a.Events/4)
	}
}

// BenchmarkCluster is an Allgather in virtual time: the last two are what the
// packet level and the coarse mode are made for, and take their time
// (-benchtime 1x).
func BenchmarkCluster(b *testing.B) {
	for _, c := range []struct{ hosts, radix, chains, coarse int }{{128, 16, 1, 1}, {1024, 32, 4, 1}, {16384, 64, 4, 32}} {
		b.Run(fmt.Sprintf("%d/train=%d", c.hosts, c.coarse), func(b *testing.B) {
			var events, chunks float64
			for range b.N {
				s := gather(c.hosts, c.radix, c.chains, c.coarse)
				r := s.Run()
				require.NoError(b, r.Err)
				events += float64(r.Events)
				chunks += float64(r.Chunks) * float64(c.hosts-1)
				b.ReportMetric(float64(r.Spans[0].To.Microseconds()), "virtual-us")
			}
			b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(chunks/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
