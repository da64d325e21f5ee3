package world

import (
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
)

// onHosts has ranks, some on each host, join a group and call do. The switch beside them, if they name it,
// is at ":7001" of atSwitch(size).
func onHosts(t *testing.T, hosts, each int, change func(*config.Settings), do func(rank int, g *group.Group)) {
	size := hosts * each
	on := make([]int, size)
	for r := range on {
		on[r] = r % hosts
	}
	w := New(Config{Ranks: size, On: on, Nodes: 1, Delay: 20 * time.Microsecond, Rate: 1.25e8, MTU: 1500, Queue: 1024})
	n, err := switchd.Start(switchd.Config{Bind: ":7001", Workers: 1, Network: w.Host(size).Sessions()})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			s := config.Default()
			s.Timeout = 3 * time.Second
			change(&s)
			e, err := group.Open(group.Options{
				Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			blobs, err := e.Rendezvous(t.Context(), meetingPoint)
			require.NoError(t, err)
			g, err := e.Join(t.Context(), blobs)
			require.NoError(t, err)
			defer func() {
				if t.Failed() {
					_ = g.Abort("the test has failed") // lest others wait for it
				}
			}()
			do(rank, g)
			require.NoError(t, g.Close())
		})
	}
	all.Wait()
}

func atSwitch(size int) string { return netip.AddrPortFrom(hostAddr(size), 7001).String() }

// TestStatsOfASwitch: a reduction counts once, and as one through the switch if all that left the host
// went there. Of a Reduce that is no data at a rank that is not in the root's column.
func TestStatsOfASwitch(t *testing.T) {
	const hosts, each, size = 2, 2, 4
	synctest.Test(t, func(t *testing.T) {
		onHosts(t, hosts, each, func(s *config.Settings) { s.Switch = atSwitch(size) }, func(_ int, g *group.Group) {
			const n = 1 << 20
			all, own := make([]byte, size*n), make([]byte, n)
			for range 2 {
				require.NoError(t, g.ReduceScatter(all, own, reduce.I32, reduce.Sum, 1))
			}
			s := g.Stats()
			require.Equal(t, []uint64{2, 2, 0}, []uint64{s.ReduceOps, s.SwitchOps, s.DirectOps})
			require.NoError(t, g.Reduce(all[:n], own, reduce.I32, reduce.Sum, 1, 1))
			s = g.Stats()
			require.Equal(t, []uint64{3, 3, 0}, []uint64{s.ReduceOps, s.SwitchOps, s.DirectOps})
		})
	})
}

// TestStatsAreOfCalls: the counters of a group with nodes say the same as the counters of a group without. Operations
// count as they were called, and their times divide the time that passed while each was in flight, even though an
// operation goes in steps beside each other; bytes are the network's, and bytes within a host stand apart.
func TestStatsAreOfCalls(t *testing.T) {
	const (
		hosts, each = 2, 3
		size        = hosts * each
		n           = 3 << 20 // bytes of a shard: twelve segments
	)
	var of [2][size]monitor.Stats
	for i, nodes := range []string{"off", "auto"} {
		synctest.Test(t, func(t *testing.T) {
			onHosts(t, hosts, each, func(s *config.Settings) { s.Nodes = nodes }, func(rank int, g *group.Group) {
				require.Equal(t, nodes == "auto", g.Nodes() != nil)
				send, all := make([]byte, n), make([]byte, size*n)
				alone := func(call func() (*group.Work, error)) {
					t.Helper()
					start := time.Now()
					w, err := call()
					require.NoError(t, err)
					require.NoError(t, w.Wait(t.Context()))
					took, account := time.Since(start), w.Account()
					assert.LessOrEqual(t, account.Total(), took, "nodes %s, rank %d: %v", nodes, rank, account)
					assert.InDelta(t, took, account.Total(), float64(took)/4, "nodes %s, rank %d: %v", nodes, rank, account)
					require.NoError(t, g.Barrier()) // with the next one all begin together
				}
				alone(func() (*group.Work, error) { return g.StartAllgather(send, all) })
				alone(func() (*group.Work, error) { return g.StartBroadcast(all[:n], 4) })
				alone(func() (*group.Work, error) { return g.StartReduceScatter(all, send, reduce.I32, reduce.Sum, 1) })
				alone(func() (*group.Work, error) { return g.StartReduce(send, all[:n], reduce.I32, reduce.Sum, 1, 4) })
				alone(func() (*group.Work, error) { return g.StartAllreduce(send, send, reduce.I32, reduce.Sum, 1) })
				alone(func() (*group.Work, error) { return g.StartAllreduce(send[:8], send[:8], reduce.I32, reduce.Sum, 1) })
				of[i][rank] = g.Stats()
			})
		})
	}
	for rank := range size {
		flat, nodes := of[0][rank], of[1][rank]
		assert.Equal(t, flat.GatherOps, nodes.GatherOps, "rank %d", rank)
		assert.Equal(t, flat.ReduceOps, nodes.ReduceOps)
		assert.Equal(t, flat.DirectOps, nodes.DirectOps)
		assert.Equal(t, flat.GatherBytes, nodes.GatherBytes)
		assert.Equal(t, flat.ReduceBytes, nodes.ReduceBytes)
		for _, s := range []monitor.Stats{flat, nodes} {
			gather := s.GatherQueued + s.GatherPeers + s.GatherTurn + s.GatherTransfer + s.GatherFinish
			reduce := s.ReduceQueued + s.ReducePeers + s.ReduceTurn + s.ReduceTransfer + s.ReduceFinish
			assert.LessOrEqual(t, gather, s.GatherBusy+s.GatherQueued, "those in flight together queue")
			assert.LessOrEqual(t, reduce, s.ReduceBusy+s.ReduceQueued)
		}
		assert.Zero(t, flat.NodeSentBytes+flat.NodeReceivedBytes)
		// The Allgather alone has a rank pass on its own shard and, of each other host, one.
		assert.Greater(t, nodes.NodeSentBytes, uint64(hosts*n))
		assert.Greater(t, nodes.NodeReceivedBytes, uint64(hosts*(each-1)*n))
		assert.Less(t, nodes.ReduceSentBytes, flat.ReduceSentBytes/2, "only sums leave the host")
		assert.Less(t, nodes.GatherReceivedBytes, flat.GatherReceivedBytes/2)
	}
}
