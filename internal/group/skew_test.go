package group

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// Ranks of these tests come late to something by more than MCAST_TIMEOUT. They live, so nothing may
// fail. All groups of a test wait at the same time.
const (
	skew      = 14 * time.Second // more than short
	skewRanks = 3
)

// firsts are the calls that a group may begin with, each with arguments for it.
func firsts() map[string]func(g *Group) error {
	const large = 96 << 10 // more than an Allreduce sends as one Allgather
	return map[string]func(g *Group) error{
		"allgather":       func(g *Group) error { return g.Allgather(make([]byte, large), make([]byte, large*g.Size())) },
		"allgather/eager": func(g *Group) error { return g.Allgather(make([]byte, 64), make([]byte, 64*g.Size())) },
		"broadcast":       func(g *Group) error { return g.Broadcast(make([]byte, large), 0) },
		"barrier":         func(g *Group) error { return g.Barrier() },
		"reduce-scatter": func(g *Group) error {
			return g.ReduceScatter(make([]byte, large*g.Size()), make([]byte, large), reduce.F32, reduce.Sum, 1)
		},
		"reduce": func(g *Group) error {
			return g.Reduce(make([]byte, large), make([]byte, large), reduce.F32, reduce.Sum, 1, 0)
		},
		"allreduce": func(g *Group) error {
			return g.Allreduce(make([]byte, large), make([]byte, large), reduce.F32, reduce.Sum, 1)
		},
	}
}

// TestLateAtTheFirst has each rank come late to each call that may be a group's first. Over udp
// package world does so in virtual time; the kernel's sockets have one such call of each lane here.
func TestLateAtTheFirst(t *testing.T) {
	waits(t)
	var all sync.WaitGroup
	for _, fabric := range []string{"shm", "udp"} {
		for name, call := range firsts() {
			if fabric == "udp" && name != "allgather" && name != "reduce-scatter" {
				continue
			}
			for late := range skewRanks {
				g := world(t, skewRanks, func(s *config.Settings) { s.Fabric, s.Timeout = fabric, short })
				for r := range skewRanks {
					all.Go(func() {
						if r == late {
							systest.Pause(skew)
						}
						assert.NoError(t, call(g[r]), "%s over %s, rank %d late: rank %d", name, fabric, late, r)
					})
				}
			}
		}
	}
	all.Wait()
}

// TestLateAtJoin has each rank come late to Join: when the others have its blob and connect to it
// already.
func TestLateAtJoin(t *testing.T) {
	waits(t)
	var all sync.WaitGroup
	for _, fabric := range []string{"shm", "udp"} {
		for late := range skewRanks {
			eps, blobs := openAll(t, skewRanks, func(s *config.Settings) { s.Fabric, s.Timeout = fabric, short })
			for r, e := range eps {
				all.Go(func() {
					if r == late {
						systest.Pause(skew)
					}
					g, err := e.Join(t.Context(), blobs)
					if assert.NoError(t, err, "%s, rank %d late: rank %d", fabric, late, r) {
						assert.NoError(t, g.Barrier())
						assert.NoError(t, g.Close())
					}
				})
			}
		}
	}
	all.Wait()
}

// TestJoinTimeoutNamesWhoIsLate has a rank never come to Join: the others give up when
// MCAST_JOIN_TIMEOUT is over, not when MCAST_TIMEOUT is.
func TestJoinTimeoutNamesWhoIsLate(t *testing.T) {
	waits(t)
	const limit = 1200 * time.Millisecond
	eps, blobs := openAll(t, 2, func(s *config.Settings) { s.Timeout, s.JoinTimeout = limit/4, limit })
	defer eps[1].Close()
	var err error
	systest.AtLeast(t, limit, func() { _, err = eps[0].Join(t.Context(), blobs) })
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, fmt.Sprintf("MCAST_JOIN_TIMEOUT of %v is over", limit))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
