package world

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
)

// TestOutputsOnTwoLevels gathers results that are many times as large as the rings of the region into
// memory that holds three of them, so that it goes round with every third one while each rank still holds
// the one before. What the columns write is compared when it comes, and again before it is let go of.
// Results that do not fit lie in each rank's own memory.
func TestOutputsOnTwoLevels(t *testing.T) {
	const hosts, perHost, outputs, rounds = 2, 3, 4 << 20, 3
	const size = hosts * perHost
	const large, most = outputs / 3 / size, outputs / 2 / size // bytes of a shard
	shards := []int{large, large - 5000, large, most + 4096, 200_001, 1, large}
	synctest.Test(t, func(t *testing.T) {
		var on []int
		for r := range size {
			on = append(on, r/perHost)
		}
		w := New(Config{Ranks: size, On: on, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 9000, Queue: 1024})
		var all sync.WaitGroup
		for rank := range size {
			all.Go(func() {
				s := config.Default()
				s.Timeout, s.Outputs, s.ShmSlots, s.ShmChunk = 3*time.Second, outputs, 4, 16<<10
				e, err := group.Open(group.Options{
					Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				blobs, err := e.Rendezvous(t.Context(), meetingPoint)
				require.NoError(t, err)
				g, err := e.Join(t.Context(), blobs)
				require.NoError(t, err)
				defer func() { _ = g.Abort("the test failed") }() // does nothing behind Close
				require.Equal(t, hosts, g.Info().Nodes)
				letGo, shared := func() {}, 0
				for i := range rounds * len(shards) {
					n := shards[i%len(shards)]
					recv := make([]byte, size*n)
					place := g.Reserve(n)
					require.Equal(t, n <= most, place != nil)
					if place != nil {
						recv, err = place.Wait(time.Time{})
						require.NoError(t, err)
						shared++
					}
					send := make([]byte, n)
					for k := range send {
						send[k] = given(i, rank, k)
					}
					require.NoError(t, g.Allgather(send, recv))
					look := func() { require.Empty(t, differs(recv, func(k int) byte { return given(i, k/n, k%n) })) }
					look()
					letGo()
					letGo = func() {
						look()
						if place != nil {
							place.Release()
						}
					}
				}
				letGo()
				require.EqualValues(t, shared, g.Stats().SharedOps, "nobody had to decline")
				require.Zero(t, g.Stats().Warnings)
				require.NoError(t, g.Close())
			})
		}
		all.Wait()
	})
}
