package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
)

// childTowards returns the child of a root below which a rank is, or which it is.
func childTowards(ring []int, root, rank int) int {
	order := topology.NewOrder(ring)
	for {
		parent := topology.Graph{Rank: rank, Size: len(ring), Order: order}.Parent(root)
		if parent == root {
			return rank
		}
		rank = parent
	}
}

// TestWhoIsBelowAChild: each rank is below one child of a root, as the tree has it.
func TestWhoIsBelowAChild(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for size := 2; size < 40; size++ {
		ring := random.Perm(size)
		for root := range size {
			for rank := range size {
				if rank == root {
					continue
				}
				for child := range size {
					if (topology.Graph{Rank: root, Size: size, Order: topology.NewOrder(ring)}).ChildIndex(root, child) >= 0 {
						require.Equal(t, child == childTowards(ring, root, rank), slices.Contains(belowIn(ring, root, child), rank),
							"ring %v, root %d, child %d, rank %d", ring, root, child, rank)
					}
				}
			}
		}
	}
}

// TestABarrierIsFollowedToItsEnd: a rank hears in the last round that is late of one that has waited itself.
func TestABarrierIsFollowedToItsEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for _, size := range []int{3, 4, 7, 8, 16, 33, 64} {
		for range 20 {
			ring, late := random.Perm(size), random.IntN(size)
			order := topology.NewOrder(ring)
			in := func(rank int) topology.Graph { return topology.Graph{Rank: rank, Size: size, Order: order} }
			// heard is when a rank has heard a round: once the other end has begun, and heard the rounds before.
			var heard func(rank, round int) time.Duration
			begun := func(rank int) time.Duration {
				if rank == late {
					return time.Second / 2
				}
				return 0
			}
			heard = func(rank, round int) time.Duration {
				from := in(rank).From(round)
				at := begun(from)
				for k := range round {
					at = max(at, heard(from, k))
				}
				return at
			}
			j := Job{Size: size}
			for rank := range size {
				a := Account{Rank: rank, Ring: ring, Span: time.Second, Took: 1, Counters: map[string]uint64{"gather_busy_ns": 9e8}}
				if rank == late {
					a.Took, a.Counters["gather_busy_ns"] = 0.5, 4e8
				}
				for k := range in(rank).Rounds() {
					if d := heard(rank, k); d > 0 && rank != late {
						a.Awaited = append(a.Awaited, monitor.Awaited{Rank: in(rank).From(k), Barrier: d})
						break // those after it come at the same time
					}
				}
				j.Accounts = append(j.Accounts, a)
			}
			require.Equal(t, []string{fmt.Sprintf("slow-rank[%d]", late)}, said(Verdict(&j)), "ring %v", ring)
		}
	}
}

// TestAWaitIsFollowedToItsEnd: each root waits for the credit of the child below which the slow rank is. Some also wait
// for the credit of other ranks, as in healthy jobs.
func TestAWaitIsFollowedToItsEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for _, size := range []int{3, 4, 7, 8, 16, 33, 64} {
		for range 20 {
			ring, slow := random.Perm(size), random.IntN(size)
			order := topology.NewOrder(ring)
			j := Job{Size: size}
			for root := range size {
				a := Account{Rank: root, Ring: ring, Span: time.Second, Counters: map[string]uint64{"gather_busy_ns": 1e9}}
				g := topology.Graph{Rank: root, Size: size, Order: order}
				for k := range g.Children(root) {
					w := monitor.Awaited{Rank: g.Child(k), Credit: time.Duration(random.Float64() * 0.05e9)}
					if root != slow && w.Rank == childTowards(ring, root, slow) {
						w.Credit += time.Second / 2
					}
					a.Awaited = append(a.Awaited, w)
				}
				j.Accounts = append(j.Accounts, a)
			}
			require.Equal(t, []string{fmt.Sprintf("slow-link[%d]", slow)}, said(Verdict(&j)), "ring %v", ring)
		}
	}
}
