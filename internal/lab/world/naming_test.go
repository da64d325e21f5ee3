package world

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestMismatchWithNodes: whoever of a column or node calls something else is named by its rank in the group,
// and what it called as it called it, or as a segment of that.
func TestMismatchWithNodes(t *testing.T) {
	const (
		hosts, each, size = 2, 2, 4
		odd               = 3
	)
	of := func(rank, others, its int) int {
		if rank == odd {
			return its
		}
		return others
	}
	for name, c := range map[string]struct {
		call func(rank int, g *group.Group) error
		what string // that the odd one called
	}{
		"allgather": {func(rank int, g *group.Group) error {
			n := of(rank, 1000, 2000)
			return g.Allgather(make([]byte, n), make([]byte, size*n))
		}, "allgather of 2000 bytes"},
		"segments": {func(rank int, g *group.Group) error {
			n := of(rank, 1<<20, 3<<20)
			return g.Allgather(make([]byte, n), make([]byte, size*n))
		}, "allgather of"}, // its own row first, which is in one piece
		"broadcast": {func(rank int, g *group.Group) error {
			return g.Broadcast(make([]byte, 200_000), of(rank, 2, odd)) // of one column, on different hosts
		}, "broadcast of 200000 bytes from rank 3"},
		"reduce": {func(rank int, g *group.Group) error {
			return g.Reduce(make([]byte, 400), make([]byte, 400), reduce.I32, reduce.Sum, 1, of(rank, 2, odd))
		}, "reduce to rank 3 "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				onHosts(t, hosts, each, func(*config.Settings) {}, func(rank int, g *group.Group) {
					err := c.call(rank, g)
					if err == nil { // it has given and got all that it had to
						err = g.Barrier()
					}
					ranks, what, ok := group.MismatchOf(err)
					if !assert.True(t, ok, "rank %d: %v", rank, err) {
						return
					}
					it := 0
					if ranks[1] == odd {
						it = 1
					}
					assert.Equal(t, odd, ranks[it], "%v", err)
					assert.Contains(t, what[it], c.what)
					assert.NotEqual(t, odd, ranks[1-it])
					if name == "broadcast" || name == "reduce" {
						assert.Contains(t, what[1-it], fmt.Sprintf("rank %d", 2))
					}
				})
			})
		})
	}
}
