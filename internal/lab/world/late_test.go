package world

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// firsts are the calls that a group may begin with.
var firsts = map[string]func(g *group.Group) error{
	"close":           func(*group.Group) error { return nil },
	"allgather":       func(g *group.Group) error { return g.Allgather(make([]byte, large), make([]byte, large*g.Size())) },
	"allgather/eager": func(g *group.Group) error { return g.Allgather(make([]byte, 64), make([]byte, 64*g.Size())) },
	"broadcast":       func(g *group.Group) error { return g.Broadcast(make([]byte, large), 0) },
	"barrier":         func(g *group.Group) error { return g.Barrier() },
	"reduce-scatter": func(g *group.Group) error {
		return g.ReduceScatter(make([]byte, large*g.Size()), make([]byte, large), reduce.F32, reduce.Sum, 1)
	},
	"reduce": func(g *group.Group) error {
		return g.Reduce(make([]byte, large), make([]byte, large), reduce.F32, reduce.Sum, 1, 0)
	},
	"allreduce": func(g *group.Group) error {
		return g.Allreduce(make([]byte, large), make([]byte, large), reduce.F32, reduce.Sum, 1)
	},
}

const large = 96 << 10 // more than an Allreduce sends as one Allgather

// TestLate has each rank come late, by more than twice MCAST_TIMEOUT, to the rendezvous, to Join,
// when the others connect to it already, and to each call that may be a group's first: it lives, so
// nothing may fail.
func TestLate(t *testing.T) {
	for name, call := range firsts {
		for late := range 3 {
			t.Run(fmt.Sprintf("%s/%d", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { comeLate(t, late, call) })
			})
		}
	}
}

func comeLate(t *testing.T, late int, call func(g *group.Group) error) {
	const size, times = 3, 3
	w := New(Config{Ranks: size, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256})
	s := config.Default()
	s.Fabric, s.Timeout = "udp", 2*time.Second
	var all sync.WaitGroup
	for rank := range size {
		wait := func() {
			if rank == late {
				time.Sleep(9 * s.Timeout / 4)
			}
		}
		all.Go(func() {
			e, err := group.Open(group.Options{Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler)})
			if !assert.NoError(t, err) {
				return
			}
			wait()
			blobs, err := e.Rendezvous(t.Context(), meetingPoint)
			if !assert.NoError(t, err) {
				return
			}
			wait()
			g, err := e.Join(t.Context(), blobs)
			if !assert.NoError(t, err) {
				return
			}
			wait()
			assert.NoError(t, call(g))
			assert.NoError(t, g.Close())
		})
	}
	all.Wait()
	assert.GreaterOrEqual(t, time.Since(w.start), times*9*s.Timeout/4)
}
