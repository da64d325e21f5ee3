package world

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestSwitches runs random scenarios with aggregation nodes.
func TestSwitches(t *testing.T) {
	_, failure, err := Switches(t).Soak(search.Limits{First: 1, Seeds: systest.Draw[uint64](12, 40)}, nil)
	require.NoError(t, err)
	if failure != nil {
		t.Fatalf("seed %d fails: %v\n  again: go test ./internal/lab/world -run TestSoak -switch -first %d -seeds 1",
			failure.Seed, failure.Outcome.Err, failure.Seed)
	}
}

// TestSwitchInVirtualTime sums through a tree of two nodes: two ranks have joined the root, two the leaf below it.
func TestSwitchInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4
		w := New(Config{Ranks: size, Nodes: 2, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256})
		for i, parent := range []string{"", "10.0.0.5:7001"} {
			n, err := switchd.Start(switchd.Config{
				Bind: ":7001", Workers: 2, Parent: parent, Network: w.Host(size + i).Sessions(),
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, n.Close()) }()
		}
		var all sync.WaitGroup
		for rank := range size {
			s := config.Default()
			s.Fabric, s.Timeout, s.Switch = "udp", 3*time.Second, "10.0.0.5:7001"
			if rank%2 == 1 {
				s.Switch = "10.0.0.6:7001"
			}
			all.Go(func() {
				e, err := group.Open(group.Options{
					Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				blobs, err := e.Rendezvous(context.Background(), "10.0.0.1:7000")
				require.NoError(t, err)
				g, err := e.Join(context.Background(), blobs)
				require.NoError(t, err)
				for _, n := range []int{1000, 100_000} {
					send, out := make([]byte, size*n), make([]byte, n)
					for k := range send {
						send[k] = byte(rank + k)
					}
					require.NoError(t, g.ReduceScatter(send, out, reduce.U8, reduce.Sum, 1))
					for k := range out {
						assert.Equal(t, byte(size*(rank*n+k)+6), out[k])
					}
				}
				require.EqualValues(t, 2, g.Stats().SwitchOps)
				require.NoError(t, g.Close())
			})
		}
		all.Wait()
		require.Less(t, time.Since(w.start), time.Second)
	})
}
