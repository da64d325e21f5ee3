package world

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// disagreement is a call that ranks make in two ways, and what each way is called in an error.
type disagreement struct {
	name string
	call func(g *group.Group, odd bool) error
	what [2]string // of most, and of the odd ones
}

// disagreements are those of all collectives, in a group of some ranks. Roots are a and b.
func disagreements(ranks, a, b int) (all []disagreement) {
	pick := func(odd bool, most, its int) int {
		if odd {
			return its
		}
		return most
	}
	for _, n := range []int{400, 600_000} { // in one piece, and in segments
		gathers := func(g *group.Group, n int) error { return g.Allgather(make([]byte, n), make([]byte, ranks*n)) }
		casts := func(g *group.Group, n, root int) error { return g.Broadcast(make([]byte, n), root) }
		scatters := func(g *group.Group, n int, t reduce.Type, op reduce.Op, factor float64) error {
			return g.ReduceScatter(make([]byte, ranks*n), make([]byte, n), t, op, factor)
		}
		reduces := func(g *group.Group, root int, t reduce.Type) error {
			return g.Reduce(make([]byte, n), make([]byte, n), t, reduce.Sum, 1, root)
		}
		f32 := fmt.Sprintf("sum of f32, %d bytes a shard)", n)
		i32 := fmt.Sprintf("sum of i32, %d bytes a shard)", n)
		all = append(all, []disagreement{
			{"allgather, length", func(g *group.Group, odd bool) error { return gathers(g, pick(odd, n, 2*n)) },
				[2]string{fmt.Sprintf("allgather of %d bytes", n), fmt.Sprintf("allgather of %d bytes", 2*n)}},
			{"broadcast, root", func(g *group.Group, odd bool) error { return casts(g, n, pick(odd, a, b)) },
				[2]string{fmt.Sprintf("broadcast of %d bytes from rank %d", n, a),
					fmt.Sprintf("broadcast of %d bytes from rank %d", n, b)}},
			{"broadcast, length", func(g *group.Group, odd bool) error { return casts(g, pick(odd, n, n+4), a) },
				[2]string{fmt.Sprintf("broadcast of %d bytes from rank %d", n, a),
					fmt.Sprintf("broadcast of %d bytes from rank %d", n+4, a)}},
			{"broadcast or barrier", func(g *group.Group, odd bool) error {
				if odd {
					return g.Barrier()
				}
				return casts(g, n, a)
			}, [2]string{fmt.Sprintf("broadcast of %d bytes from rank %d", n, a), "barrier"}},
			{"broadcast or allgather", func(g *group.Group, odd bool) error {
				if odd {
					return gathers(g, n)
				}
				return casts(g, n, a)
			}, [2]string{fmt.Sprintf("broadcast of %d bytes from rank %d", n, a), fmt.Sprintf("allgather of %d bytes", n)}},
			{"reduce-scatter, type", func(g *group.Group, odd bool) error {
				if odd {
					return scatters(g, n, reduce.F32, reduce.Sum, 1)
				}
				return scatters(g, n, reduce.I32, reduce.Sum, 1)
			}, [2]string{"reduce-scatter number 0 (" + i32, "reduce-scatter number 0 (" + f32}},
			{"reduce-scatter, factor", func(g *group.Group, odd bool) error {
				return scatters(g, n, reduce.F32, reduce.PremulSum, float64(pick(odd, 2, 3)))
			}, [2]string{"factor 2, ", "factor 3, "}},
			{"reduce-scatter, length", func(g *group.Group, odd bool) error {
				return scatters(g, pick(odd, n, 2*n), reduce.I32, reduce.Sum, 1)
			}, [2]string{i32, fmt.Sprintf("sum of i32, %d bytes a shard)", 2*n)}},
			{"reduce, root", func(g *group.Group, odd bool) error { return reduces(g, pick(odd, a, b), reduce.F32) },
				[2]string{fmt.Sprintf("reduce to rank %d number 0 (%s", a, f32),
					fmt.Sprintf("reduce to rank %d number 0 (%s", b, f32)}},
			{"reduce, type", func(g *group.Group, odd bool) error {
				if odd {
					return reduces(g, a, reduce.I32)
				}
				return reduces(g, a, reduce.F32)
			}, [2]string{fmt.Sprintf("reduce to rank %d number 0 (%s", a, f32),
				fmt.Sprintf("reduce to rank %d number 0 (%s", a, i32)}},
			{"reduce or reduce-scatter", func(g *group.Group, odd bool) error {
				if odd {
					return scatters(g, n, reduce.F32, reduce.Sum, 1)
				}
				return reduces(g, a, reduce.F32)
			}, [2]string{fmt.Sprintf("reduce to rank %d number 0 (%s", a, f32), "reduce-scatter number 0 (" + f32}},
		}...)
	}
	return all
}

// TestMismatchWithNodes: ranks that call different things on hosts of several ranks get an error of that very call,
// which names two of them and what their callers called, with any number of steps in the call. Odd ones are each rank
// alone, and each host as a whole; roots are on one host, on two, and in no column.
func TestMismatchWithNodes(t *testing.T) {
	number := 0
	for _, on := range [][]int{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 0, 0, 0, 1, 1}, {0, 1, 0, 1, 0, 0}} {
		for _, roots := range [][2]int{{len(on) - 1, 0}, {2, 0}} {
			for _, d := range disagreements(len(on), roots[0], roots[1]) {
				for _, odd := range oddOnes(on) {
					// 9 shares no factor with how many odd ones or disagreements there are
					if number++; number%systest.Draw(9, 1) != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/%s/%v", on, roots, d.name, odd), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { disagreed(t, on, "", &d, odd) })
					})
				}
			}
		}
	}
}

// TestMismatchInColumnsOfASwitch is TestMismatchWithNodes where a switch sums for columns. It knows no more than
// steps, so that one rank's call may be named.
func TestMismatchInColumnsOfASwitch(t *testing.T) {
	number := 0
	for _, on := range [][]int{{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 0, 1, 1}} {
		for _, roots := range [][2]int{{1, len(on) - 1}, {2, 0}} {
			for _, d := range disagreements(len(on), roots[0], roots[1]) {
				for _, odd := range oddOnes(on) {
					// 9 shares no factor with how many odd ones or disagreements there are
					if number++; number%systest.Draw(9, 1) != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/%s/%v", on, roots, d.name, odd), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { disagreed(t, on, atSwitch(len(on)), &d, odd) })
					})
				}
			}
		}
	}
}

// oddOnes returns each rank, and the ranks of each host but for the one that most are on.
func oddOnes(on []int) (all [][]int) {
	for r := range on {
		all = append(all, []int{r})
	}
	var last []int
	for r, host := range on {
		if host == 1 {
			last = append(last, r)
		}
	}
	if len(last) > 1 {
		all = append(all, last)
	}
	return all
}

// disagreed has some ranks make the odd call, and wants all to be told so before another is made.
func disagreed(t *testing.T, on []int, via string, d *disagreement, odd []int) {
	size := len(on)
	w := New(Config{Ranks: size, On: on, Nodes: 1, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 1024})
	if via != "" {
		n, err := switchd.Start(switchd.Config{Bind: ":7001", Workers: 1, Network: w.Host(size).Sessions()})
		require.NoError(t, err)
		defer func() { require.NoError(t, n.Close()) }()
	}
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			s := config.Default()
			s.Timeout, s.Switch = 3*time.Second, via
			e, err := group.Open(group.Options{
				Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			blobs, err := e.Rendezvous(context.Background(), meetingPoint)
			require.NoError(t, err)
			g, err := e.Join(context.Background(), blobs)
			require.NoError(t, err)
			time.Sleep(time.Second) // until all have joined
			hang := time.AfterFunc(time.Minute, func() {
				t.Errorf("rank %d hangs", rank)
				_ = g.Abort("it hangs")
			})
			err = d.call(g, slices.Contains(odd, rank))
			hang.Stop()
			if err == nil { // it has given and got all that it had to
				time.Sleep(time.Second)
				begun := time.Now()
				err = g.Barrier()
				assert.Less(t, time.Since(begun), w.cfg.Delay, "rank %d is told by the next call", rank)
			}
			d.check(t, rank, odd, err, via != "")
			_ = g.Close()
		})
	}
	all.Wait()
}

// check looks at the error that a rank has got.
func (d *disagreement) check(t *testing.T, rank int, odd []int, err error, switched bool) {
	between, ok := group.MismatchOf(err)
	if !assert.True(t, ok, "rank %d: %v", rank, err) {
		return
	}
	ranks, what := between.Ranks, between.What
	its := [2]bool{slices.Contains(odd, ranks[0]), slices.Contains(odd, ranks[1])}
	assert.NotEqual(t, its[0], its[1], "%v", err)
	for i, is := range its {
		want := d.what[0]
		if is {
			want = d.what[1]
		}
		if switched && i == 1 && len(what[1]) > 0 &&
			assert.ObjectsAreEqual("something else", what[1][:min(len(what[1]), 14)]) {
			continue
		}
		assert.Contains(t, what[i], want, "%v", err)
	}
}
