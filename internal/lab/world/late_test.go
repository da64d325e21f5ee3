package world

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
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
	"close": func(*group.Group) error { return nil },
	"allgather": func(g *group.Group) error {
		return g.Allgather(make([]byte, large), make([]byte, large*g.Size()))
	},
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
			e, err := group.Open(group.Options{
				Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
			})
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

// TestWhoIsLateIsSaid: while the others wait for a rank that is late to a call, in the midst of a job, their logs name
// the rank and the call, after a few seconds and each time that the wait has doubled, and say when the rank has come.
// The moment at which a reduction last moved is known to a second.
func TestWhoIsLateIsSaid(t *testing.T) {
	gathers, reduces := []string{"6s", "12s", "24s"}, []string{"5s", "10s", "20s"}
	for name, want := range map[string]struct {
		what  string
		after []string
	}{
		"allgather":       {"allgather of 98304 bytes", gathers},
		"allgather/eager": {"allgather of 64 bytes", gathers},
		"barrier":         {"barrier", gathers},
		"reduce-scatter":  {"reduce-scatter of 98304 bytes a shard", reduces},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for rank, log := range logsOfLateRank(t, firsts[name]) {
					for _, after := range want.after {
						assert.Equal(t, rank != 1,
							strings.Contains(log, "level=WARN msg=\"waiting for rank 1 for "+after+" in "+want.what+", number 1: "), log)
					}
					assert.Equal(t, rank != 1, strings.Contains(log,
						"level=WARN msg=\"no longer waiting for rank 1, after "+want.after[2]+" or more, in "+want.what+", number 1\""),
						log)
				}
			})
		})
	}
}

// logsOfLateRank has three ranks call something twice, rank 1 half a minute late the second time.
func logsOfLateRank(t *testing.T, call func(g *group.Group) error) [3]string {
	const size = 3
	w := New(Config{Ranks: size, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256})
	s := config.Default()
	s.Fabric, s.Timeout = "udp", 2*time.Second
	var logs [size]bytes.Buffer
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			e, err := group.Open(group.Options{
				Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.NewTextHandler(&logs[rank], nil)),
			})
			if !assert.NoError(t, err) {
				return
			}
			blobs, err := e.Rendezvous(t.Context(), meetingPoint)
			if !assert.NoError(t, err) {
				return
			}
			g, err := e.Join(t.Context(), blobs)
			if !assert.NoError(t, err) {
				return
			}
			assert.NoError(t, call(g))
			if rank == 1 {
				time.Sleep(30 * time.Second)
			}
			assert.NoError(t, call(g))
			time.Sleep(3 * time.Second)
			assert.NoError(t, g.Close())
		})
	}
	all.Wait()
	var texts [size]string
	for rank := range logs {
		texts[rank] = logs[rank].String()
	}
	return texts
}
