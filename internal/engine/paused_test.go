package engine

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestPausedRankAsksForNothing: chunks in the queue of a rank that does not run for longer than any cutoff are not
// lost, however few of them a poll takes.
func TestPausedRankAsksForNothing(t *testing.T) {
	for _, offload := range []batch.Offload{batch.OffloadAuto, batch.OffloadBatch, batch.OffloadSingle} {
		now := time.Second
		ranks := pairOverUDP(t, offload, func() time.Duration { return now })
		var works []*Work
		for range 16 {
			for r, g := range ranks {
				o := GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: 100}, Recv: make([]byte, 100)}
				if r == 0 {
					o.Send = o.Recv
				}
				w, err := g.Submit(o, nil)
				require.NoError(t, err)
				works = append(works, w)
			}
		}
		ranks[1].Work()
		for range 4 {
			ranks[0].Work()
		}
		now += 50 * time.Millisecond // lo delivers before a send returns: everything is there
		for end := systest.Deadline(); len(works) > 0; {
			ranks[1].Work()
			ranks[0].Work()
			if done(works[0]) {
				require.NoError(t, works[0].Err())
				works = works[1:]
			}
			require.True(t, time.Now().Before(end), "%v: %d operations are not done", offload, len(works))
		}
		s, f := ranks[1].Stats()
		require.Zero(t, s.Lost, "%v", offload)
		require.Equal(t, []uint64{0, 0}, f.Repairs, "%v", offload)
	}
}

// pairOverUDP is two engines over lo.
func pairOverUDP(t *testing.T, offload batch.Offload, clock Clock) (ranks [2]*Gather) {
	t.Helper()
	conns := systest.Mesh(t, 2)
	lo, err := udp.Choose("", nil)
	require.NoError(t, err)
	group := netip.AddrFrom4([4]byte{239, 193, byte(rand.N(256)), byte(rand.N(200))})
	port, job := uint16(20000+rand.N(10000)), rand.Uint64()
	for r := range ranks {
		f, err := udp.Open(udp.Options{
			Rank: r, Size: 2, Job: job, Group: group, Port: port, Interface: lo, Conns: conns[r], Chunk: 1440, Offload: offload,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		ranks[r] = NewGather(GatherConfig{
			Core: multicast.Config{
				Rank: r, Size: 2, Chunk: 1440, Window: 1000, Chains: 1, Subgroups: 1, Eager: 64 << 10, Arena: 1 << 20,
				EagerChunks: 1000,
				Cutoff:      2 * time.Millisecond, Reorder: 200 * time.Microsecond,
			},
			Job: job, Fabric: f, Clock: clock,
			Broken: func(rank int, err error) { t.Errorf("rank %d: %v", rank, err) },
		})
	}
	return ranks
}
