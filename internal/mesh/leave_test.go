package mesh

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestLeave has ranks leave one after another: each waits for the last, and no connection that
// then ends, of the mesh or of data, is a fault.
func TestLeave(t *testing.T) {
	for _, size := range []int{1, 2, 5, 13} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := newGraph(t, size, time.Minute)
			for r, m := range g.mesh {
				if r == size-1 {
					systest.Eventually(t, func() bool { return len(g.mesh[0].Staying()) == 1 })
					assert.Equal(t, []int{r}, g.mesh[0].Staying())
					require.NotContains(t, allLeave(g), true, "before the last")
				}
				m.Leave(Posted{7, uint64(r)})
			}
			var closing sync.WaitGroup
			for r, m := range g.mesh {
				closing.Go(func() {
					<-m.AllLeave()
					m.Lost((r+1)%size, errors.New("its data connection ended"))
					m.Close()
				})
			}
			closing.Wait()
			for r, m := range g.mesh {
				assert.NoError(t, m.Err(), "rank %d", r)
			}
		})
	}
}

func allLeave(g *graph) (all []bool) {
	for _, m := range g.mesh {
		select {
		case <-m.AllLeave():
			all = append(all, true)
		default:
			all = append(all, false)
		}
	}
	return all
}

// TestLeaverDies: a rank that leaves is still needed until all do.
func TestLeaverDies(t *testing.T) {
	g := newGraph(t, 5, time.Minute)
	g.mesh[1].Leave(Posted{})
	g.mesh[1].Close()
	for r, m := range g.mesh {
		if r == 1 {
			continue
		}
		f := <-g.faults[r]
		assert.Equal(t, Dead, f.Kind)
		assert.Equal(t, 1, f.Rank)
		assert.Contains(t, f.Error(),
			"rank 1 is lost: its connection closed without a farewell: its process ended (seen by rank")
		m.Close()
	}
}
