package mesh

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// await returns the notice with a number, once a rank has it.
func await(t *testing.T, m *Mesh, number uint32) Notice {
	t.Helper()
	for {
		n, next := m.Noticed()
		if n.Number >= number {
			return n
		}
		systest.Receive(t, next, "rank %d has %+v", m.rank, n)
	}
}

// TestNoticeReachesAll: if one rank or many give notice at once, every rank hears of each number,
// and the mesh goes on.
func TestNoticeReachesAll(t *testing.T) {
	for _, size := range []int{1, 2, 5, 13} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := newGraph(t, size, time.Minute)
			n, _ := g.mesh[0].Noticed()
			assert.Zero(t, n)
			for number := uint32(1); number < 6; number++ {
				var wg sync.WaitGroup
				by := min(int(number), size) // so many notice at once
				for r := range by {
					wg.Go(func() { g.mesh[r].Notify(number, fmt.Sprintf("%d by %d", number, r)) })
				}
				wg.Wait()
				for r := range size {
					got := await(t, g.mesh[r], number)
					assert.Equal(t, number, got.Number)
					assert.Less(t, got.Rank, by)
					assert.Equal(t, fmt.Sprintf("%d by %d", number, got.Rank), got.Text)
				}
				g.mesh[0].Notify(number-1, "old")
			}
			var wg sync.WaitGroup
			for r := range size {
				wg.Go(func() {
					_, err := g.mesh[r].Agree(context.Background(), []byte{1})
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			for _, m := range g.mesh {
				assert.NoError(t, m.Err())
				assert.EqualValues(t, 5, await(t, m, 5).Number)
			}
		})
	}
}
