package world

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestUsersOfAHost: ranks of a host that are of several users join, and those of each share memory.
func TestUsersOfAHost(t *testing.T) {
	for _, c := range []struct {
		on, users []int
		nodes     [][]int
	}{
		{[]int{0, 0}, []int{0, 1}, nil},
		{[]int{0, 0, 0, 0}, []int{0, 1, 1, 0}, [][]int{{0, 3}, {1, 2}}},
		{[]int{0, 0, 0, 1, 1}, []int{0, 0, 1, 1, 1}, [][]int{{0, 1}, {2}, {3, 4}}},
	} {
		t.Run(fmt.Sprint(c.on, c.users), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				size := len(c.on)
				w := New(Config{
					Ranks: size, On: c.on, Users: c.users, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256,
				})
				var all sync.WaitGroup
				for rank := range size {
					all.Go(func() {
						s := config.Default()
						s.Timeout = 3 * time.Second
						e, err := group.Open(group.Options{
							Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
						})
						require.NoError(t, err)
						blobs, err := e.Rendezvous(t.Context(), meetingPoint)
						require.NoError(t, err)
						g, err := e.Join(t.Context(), blobs)
						require.NoError(t, err)
						require.Equal(t, c.nodes, g.Nodes())
						require.Contains(t, strings.Join(g.Info().Notes, "; "), "run as users 0 and 1, and so share no memory")
						const n = 3000
						send, recv, sum := make([]byte, n), make([]byte, size*n), make([]byte, n)
						for k := range send {
							send[k] = given(1, rank, k)
						}
						require.NoError(t, g.Allgather(send, recv))
						require.Empty(t, differs(recv, func(k int) byte { return given(1, k/n, k%n) }))
						require.NoError(t, g.ReduceScatter(recv, sum, reduce.U8, reduce.Sum, 1))
						require.Empty(t, differs(sum, func(k int) byte { return byte(size) * given(1, rank, k) }))
						require.NoError(t, g.Close())
					})
				}
				all.Wait()
			})
		})
	}
}
