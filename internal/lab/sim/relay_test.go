package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestRelayIsARing holds an Allgather and a Broadcast without multicast to what the ring algorithm
// takes: each shard crosses each link once, and all links are busy.
func TestRelayIsARing(t *testing.T) {
	const chunks = 2000
	for _, ranks := range []int{2, 3, 4, 8} {
		for _, c := range []wire.Collective{wire.Allgather, wire.Broadcast} {
			s := steady(2, chunks)
			s.Core.Size, s.Net.Tree.Hosts = ranks, ranks
			s.Calm, s.Relay, s.Net.Faults.MulticastLoss = true, true, 1
			s.Core.Cutoff = time.Second
			for i := range s.Ops {
				s.Ops[i].Collective = c
			}
			r := s.Run()
			require.NoError(t, r.Err)
			assert.Zero(t, r.Chunks, "multicast")
			shards := ranks
			if c == wire.Broadcast {
				shards = 1
			}
			assert.Equal(t, 2*shards*chunks*(ranks-1), r.Control[wire.Relay])
			// A chunk takes a link a microsecond and its headers.
			bytes := float64(2 * chunks * (s.Core.Chunk + wire.ControlSize))
			if c == wire.Allgather {
				bytes *= float64(ranks - 1)
			}
			law := multicast.Time(bytes / (s.Net.Gbps / 8))
			took := r.Spans[1].To
			t.Logf("%d ranks, %v: %.3f of what links allow", ranks, c, float64(law)/float64(took))
			assert.Greater(t, float64(law)/float64(took), 0.85, "%d ranks, %v", ranks, c)
		}
	}
}

// TestSmallBroadcastTakesATree: where it is relayed it has few hops, not one for each rank.
func TestSmallBroadcastTakesATree(t *testing.T) {
	const ranks, hops = 64, 6
	s := steady(1, 1)
	s.Core.Size, s.Net.Tree.Hosts, s.Ops[0].Collective = ranks, ranks, wire.Broadcast
	s.Calm, s.Relay, s.Net.Faults.MulticastLoss, s.Net.Cost = true, true, 1, 0
	s.Core.Cutoff = time.Second
	r := s.Run()
	require.NoError(t, r.Err)
	require.Equal(t, ranks-1, r.Control[wire.Relay])
	// A hop is two links and the chunk's time on them.
	chunk := multicast.Time(float64(s.Core.Chunk+wire.ControlSize) / (s.Net.Gbps / 8))
	law := hops * (2*s.Net.Latency + 2*chunk)
	t.Logf("%v, law %v", r.Spans[0].To, law)
	require.Less(t, r.Spans[0].To, law+law/10)
}

// TestMulticastCeasesAndComesBack filters multicast to one host for a while. All ranks relay soon after it
// has ceased, and multicast again after it is back.
func TestMulticastCeasesAndComesBack(t *testing.T) {
	const chunks, from, lasts = 100, 50 * time.Millisecond, 1500 * time.Millisecond
	s := steady(900, chunks)
	s.Digest, s.Core.Eager, s.Depth, s.Net.Gbps = true, 0, 2, 0.8
	s.Net.Faults.Filtered = []network.Filtered{{Host: 2, At: from, For: lasts}}
	r := s.Run()
	require.NoError(t, r.Err)
	usual := r.Spans[1].To - r.Spans[1].From
	var slow, last time.Duration
	for _, o := range r.Spans {
		if o.From > from && o.To-o.From > 4*usual {
			slow = o.To
		}
		last = max(last, o.To)
	}
	t.Logf("usual %v, no operation slow after %v; %d chunks multicast, %d relayed, %v", usual, slow-from, r.Chunks,
		r.Control[wire.Relay], last)
	assert.Less(t, slow-from, time.Second)
	assert.Less(t, last, 4*time.Second)
	assert.Greater(t, r.Chunks, 100_000, "multicast again, sooner than twice as long after it had ceased as it was away")
}
