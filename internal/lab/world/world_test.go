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
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestGroupInVirtualTime joins four ranks, one of them ten seconds late each time, and runs an
// operation of each kind.
func TestGroupInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4
		w := New(Config{Ranks: size, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256})
		s := config.Default()
		s.Fabric, s.Timeout = "udp", 3*time.Second
		var all sync.WaitGroup
		for rank := range size {
			all.Go(func() {
				if rank == 2 {
					time.Sleep(10 * time.Second)
				}
				e, err := group.Open(group.Options{
					Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				blobs, err := e.Rendezvous(context.Background(), "10.0.0.1:7000")
				require.NoError(t, err)
				g, err := e.Join(context.Background(), blobs)
				require.NoError(t, err)
				for i, n := range []int{1000, 100_000} {
					if rank == i {
						time.Sleep(10 * time.Second)
					}
					send, recv := make([]byte, n), make([]byte, size*n)
					for k := range send {
						send[k] = byte(rank + k)
					}
					require.NoError(t, g.Allgather(send, recv))
					for k := range recv {
						assert.Equal(t, byte(k/n+k%n), recv[k])
					}
					out := make([]byte, n)
					require.NoError(t, g.ReduceScatter(recv, out, reduce.U8, reduce.Sum, 1))
					for k := range out {
						assert.Equal(t, byte(size*(rank+k)), out[k])
					}
				}
				require.NoError(t, g.Barrier())
				require.NoError(t, g.Close())
			})
		}
		all.Wait()
		require.InDelta(t, 30*time.Second, time.Since(w.start), float64(10*time.Millisecond),
			"ranks wait for those that are late, and no longer")
	})
}
