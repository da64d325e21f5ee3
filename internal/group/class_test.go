package group

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

func inClass(fabric, class string) func(*config.Settings) {
	return func(s *config.Settings) { s.Fabric, s.Class = fabric, class }
}

// TestBackgroundGivesWay: while the foreground moves, a group in the background sends a little at a
// time; it is done all the same, and in a gap at once.
func TestBackgroundGivesWay(t *testing.T) {
	for _, fab := range []string{"shm", "udp"} {
		t.Run(fab, func(t *testing.T) {
			systest.Eventually(t, func() bool { return givesWay(t, fab) }, "the foreground's claim lapses every time")
		})
	}
}

// givesWay reports whether the foreground went on all the time: on a busy machine its goroutine may
// get no core for so long that its claim lapses, and the background has nothing to give way to.
func givesWay(t *testing.T, fab string) bool {
	t.Helper()
	g := world(t, 2, inClass(fab, "background"))
	link := g[0].class().Link
	const n = 1 << 20
	want := make([]byte, 2*n)
	fill(want, 3)
	var stop, lapsed atomic.Bool
	begun := make(chan struct{})
	var foreground sync.WaitGroup
	foreground.Go(func() {
		for first := true; !stop.Load(); first = false {
			if !first && link.Claimed(fabric.InForeground) == 0 {
				lapsed.Store(true)
			}
			link.Claim(fabric.InForeground, fabric.MostClaimed)
			link.Moved(64<<10, time.Millisecond) // 64 MB/s
			if first {
				close(begun)
			}
			systest.Pause(time.Millisecond)
		}
		if link.Claimed(fabric.InForeground) == 0 {
			lapsed.Store(true)
		}
	})
	<-begun
	allgather := func() {
		each(t, 2, func(r int) error {
			recv := make([]byte, 2*n)
			if err := g[r].Allgather(bytes.Clone(want[r*n:(r+1)*n]), recv); err != nil {
				return err
			}
			require.True(t, bytes.Equal(want, recv))
			return nil
		})
	}
	start := time.Now()
	allgather()
	took := time.Since(start) //nolint:forbidigo // load only adds to it
	stop.Store(true)
	foreground.Wait()
	allgather()
	if lapsed.Load() {
		return false
	}
	// A rank's pace is 2 MB/s at first, and half of that more a second per 50 ms of the foreground's.
	require.Greater(t, took, 50*time.Millisecond, "the foreground's first interval")
	return true
}

// TestClassesInOppositeOrder: rank 0 waits for the foreground first and rank 1 for the background.
// Each waits for what the other has not posted, so the foreground of rank 0, which cannot move,
// must not hold the background back.
func TestClassesInOppositeOrder(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			front, back := world(t, 2, inClass(fabric, "foreground")), world(t, 2, inClass(fabric, "background"))
			const n = 300_000
			want := make([]byte, 2*n)
			fill(want, 5)
			each(t, 2, func(r int) error {
				first, second := make([]byte, 2*n), make([]byte, 2*n)
				own := bytes.Clone(want[r*n : (r+1)*n])
				if r == 0 {
					w, err := back[r].StartAllgather(own, second)
					require.NoError(t, err)
					require.NoError(t, front[r].Allgather(own, first))
					require.NoError(t, w.Wait(context.Background()))
				} else {
					require.NoError(t, back[r].Allgather(own, second))
					require.NoError(t, front[r].Allgather(own, first))
				}
				require.True(t, bytes.Equal(want, first))
				require.True(t, bytes.Equal(want, second))
				return nil
			})
		})
	}
}

// TestThreeCommunicators runs two in the foreground and one behind them.
func TestThreeCommunicators(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			worlds := [][]*Group{
				world(t, 3, inClass(fabric, "foreground")), world(t, 3, inClass(fabric, "foreground")),
				world(t, 3, inClass(fabric, "background")),
			}
			for round := range 4 {
				each(t, 3, func(r int) error {
					var works []*Work
					var checks []func()
					for i, g := range worlds {
						n := []int{4000, 200_000, 1_500_000}[(i+round)%3]
						want, recv := make([]byte, 3*n), make([]byte, 3*n)
						fill(want, round*10+i)
						w, err := g[r].StartAllgather(bytes.Clone(want[r*n:(r+1)*n]), recv)
						if err != nil {
							return err
						}
						works, checks = append(works, w), append(checks, func() { require.True(t, bytes.Equal(want, recv)) })
						s := newSums(3, n/4, reduce.I32, reduce.Sum, round)
						w, check, err := s.start(g[r], true)
						if err != nil {
							return err
						}
						works, checks = append(works, w), append(checks, func() { check(t) })
					}
					for k := range works {
						i := (k + r) % len(works) // in another order on every rank
						if err := works[i].Wait(context.Background()); err != nil {
							return err
						}
						checks[i]()
					}
					return nil
				})
			}
			for _, g := range worlds {
				a := g[0].Waited(overlap.Gather)
				assert.Positive(t, a.Total())
				assert.Positive(t, a[overlap.Transfer])
				assert.Positive(t, g[0].Waited(overlap.Reduce).Total())
			}
		})
	}
}
