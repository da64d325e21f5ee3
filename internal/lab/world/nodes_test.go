package world

import (
	"fmt"
	"log/slog"
	"slices"
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

// TestWhatCrossesALink counts what the link of a host carries. With nodes that is every byte once: the
// shards that other hosts have come in for an Allgather, and the sums for other hosts go out for a
// Reduce-Scatter. Where each rank stands for itself, the first comes in once as well, for a host
// receives a multicast for all its ranks, but all that its ranks contribute goes out.
func TestWhatCrossesALink(t *testing.T) {
	const n = 512 << 10 // bytes of a shard
	for _, shape := range [][]int{{2, 2}, {3, 3}, {2, 2, 2, 2}, {3, 3, 3, 3}, {3, 1}, {3, 3, 1}, {4, 2, 3}} {
		for _, nodes := range []string{"auto", "off"} {
			t.Run(fmt.Sprintf("%v/%s", shape, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on := dealt(shape)
					in, out := crossing(t, on, n, nodes)
					apart := float64((len(on) - shape[0]) * n)           // shards of other hosts
					assert.InDelta(t, 1.04, in/apart, 0.04, "Allgather") // 3 % are headers
					times := 1
					if nodes == "off" {
						times = shape[0]
					}
					assert.InDelta(t, 1, out/apart/float64(times), 0.01, "Reduce-Scatter")
				})
			})
		}
	}
}

// dealt returns the host of each rank, dealt to hosts in turn until all have as many as they are to.
func dealt(shape []int) (on []int) {
	for place := range slices.Max(shape) {
		for host, ranks := range shape {
			if place < ranks {
				on = append(on, host)
			}
		}
	}
	return on
}

// crossing returns how many bytes come to host 0 over its link for an Allgather, and leave it for a
// Reduce-Scatter, of n bytes a shard.
func crossing(t *testing.T, on []int, n int, nodes string) (in, out float64) {
	size := len(on)
	w := New(Config{Ranks: size, On: on, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 1024})
	counted := func() (in, out float64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(w.hosts[0].in), float64(w.hosts[0].out)
	}
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			s := config.Default()
			s.Timeout, s.Nodes = 3*time.Second, nodes
			e, err := group.Open(group.Options{
				Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			blobs, err := e.Rendezvous(t.Context(), meetingPoint)
			require.NoError(t, err)
			g, err := e.Join(t.Context(), blobs)
			require.NoError(t, err)
			require.Equal(t, nodes == "auto", g.Nodes() != nil)
			send, recv, sum := make([]byte, n), make([]byte, size*n), make([]byte, n)
			for k := range send {
				send[k] = given(1, rank, k)
			}
			require.NoError(t, g.ReduceScatter(make([]byte, size), make([]byte, 1), reduce.U8, reduce.Sum, 1))
			between := func() (in, out float64) {
				require.NoError(t, g.Barrier())
				time.Sleep(time.Millisecond)
				in, out = counted()
				time.Sleep(time.Millisecond)
				return in, out
			}
			in0, _ := between()
			require.NoError(t, g.Allgather(send, recv))
			require.Empty(t, differs(recv, func(k int) byte { return given(1, k/n, k%n) }))
			in1, out1 := between()
			require.NoError(t, g.ReduceScatter(recv, sum, reduce.U8, reduce.Sum, 1))
			_, out2 := between()
			require.Empty(t, differs(sum, func(k int) byte { return byte(size) * given(1, rank, k) }))
			if rank == 0 {
				in, out = in1-in0, out2-out1
			}
			require.NoError(t, g.Close())
		})
	}
	all.Wait()
	return in, out
}
