package group

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

func inClass(fabric, class string) func(*config.Settings) {
	return func(s *config.Settings) { s.Fabric, s.Class = fabric, class }
}

// mover is a worker that always has something to do. It notes how long it was kept from it.
type mover struct {
	last time.Time
	gap  atomic.Duration // the longest
}

func (m *mover) Work() bool {
	time.Sleep(time.Millisecond)
	m.gap.Store(max(m.gap.Load(), time.Since(m.last)))
	m.last = time.Now()
	return true
}
func (m *mover) Sleep(time.Duration) {}
func (m *mover) Wake()               {}
func (m *mover) InFlight() int       { return 1 }

// TestBackgroundSendsInGaps: while an operation of the foreground moves, a
// background group sends nothing; in a gap it does.
func TestBackgroundSendsInGaps(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			g := world(t, 2, inClass(fabric, "background"))
			const n = 300_000
			held := 0
			for try := 0; held < 3; try++ {
				require.Less(t, try, 50, "this machine keeps threads waiting for too long to tell")
				want := make([]byte, 2*n)
				fill(want, try)
				m := &mover{last: time.Now()}
				front := overlap.NewLane(m)
				foreground.Begin(front)
				before := g[0].Stats().GatherSentBytes + g[1].Stats().GatherSentBytes
				recv, works := [2][]byte{}, [2]*Work{}
				each(t, 2, func(r int) (err error) {
					recv[r] = make([]byte, 2*n)
					works[r], err = g[r].StartAllgather(bytes.Clone(want[r*n:(r+1)*n]), recv[r])
					return err
				})
				each(t, 2, func(r int) error {
					_ = works[r].WaitUntil(time.Now().Add(60 * time.Millisecond))
					return nil
				})
				after := g[0].Stats().GatherSentBytes + g[1].Stats().GatherSentBytes
				front.Close()
				if max(m.gap.Load(), time.Since(m.last)) < 50*time.Millisecond { // it did move
					held++
					require.Equal(t, before, after)
				}
				foreground.End(front)
				each(t, 2, func(r int) error { return works[r].Wait(context.Background()) })
				for r := range g {
					require.True(t, bytes.Equal(want, recv[r]))
				}
			}
		})
	}
}

// TestPostsDoNotWaitForEachOther: while one is posted on a lane, others are, on either.
func TestPostsDoNotWaitForEachOther(t *testing.T) {
	g := world(t, 1, nil)[0]
	g.posting.RLock() // as a post that takes its time
	defer g.posting.RUnlock()
	b := make([]byte, 8)
	require.NoError(t, g.Allgather(b, make([]byte, 8)))
	require.NoError(t, g.ReduceScatter(b, make([]byte, 8), reduce.I32, reduce.Sum, 0))
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
				world(t, 3, inClass(fabric, "foreground")), world(t, 3, inClass(fabric, "foreground")), world(t, 3, inClass(fabric, "background")),
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
			require.Zero(t, foreground.InFlight())
			for _, g := range worlds {
				a := g[0].Waited(overlap.Gather)
				assert.Positive(t, a.Total())
				assert.Positive(t, a[overlap.Transfer])
				assert.Positive(t, g[0].Waited(overlap.Reduce).Total())
			}
		})
	}
}
