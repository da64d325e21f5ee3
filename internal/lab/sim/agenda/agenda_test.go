package agenda

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A queue gives the same order as a stable sort by time, with pushes and pops
// mixed in any way.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		type item struct {
			at    time.Duration
			event int
		}
		var model []item
		now := time.Duration(0)
		span := rapid.SampledFrom([]int64{1, 5, 1000, 1e5, 1e6, 1e12}).Draw(t, "span")
		for i := range rapid.IntRange(0, 400).Draw(t, "steps") {
			require.Equal(t, len(model), q.Len())
			if rapid.IntRange(0, 2).Draw(t, "pop") > 0 {
				at := now + time.Duration(rapid.Int64Range(0, span).Draw(t, "at"))
				if rapid.IntRange(0, 20).Draw(t, "early") == 0 {
					at -= time.Duration(span) // also before what was popped last
				}
				q.Push(at, i)
				k := sort.Search(len(model), func(k int) bool { return model[k].at > at })
				model = append(model, item{})
				copy(model[k+1:], model[k:])
				model[k] = item{at, i}
				continue
			}
			next, ok := q.Peek()
			at, e, popped := q.Pop()
			require.Equal(t, len(model) > 0, ok)
			require.Equal(t, ok, popped)
			if !ok {
				continue
			}
			require.Equal(t, model[0], item{at, e})
			require.Equal(t, at, next)
			model, now = model[1:], at
		}
		for _, m := range model {
			at, e, _ := q.Pop()
			require.Equal(t, m, item{at, e})
		}
	})
}

// A queue that has grown allocates no more.
func TestNoAllocation(t *testing.T) {
	var q Queue[[3]uint64]
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		q.Push(time.Duration(r.Int64N(1e6)), [3]uint64{})
	}
	now := time.Duration(0)
	churn := func() {
		for range 1000 {
			at, e, _ := q.Pop()
			now = at
			q.Push(now+time.Duration(r.Int64N(1e6)), e)
		}
	}
	for range 500 {
		churn()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(50, churn), 1.0)
}

// BenchmarkChurn is an event popped and another pushed, with a hundred
// thousand to come.
func BenchmarkChurn(b *testing.B) {
	var q Queue[[3]uint64]
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		q.Push(time.Duration(r.Int64N(1e5)), [3]uint64{})
	}
	for b.Loop() {
		at, e, _ := q.Pop()
		q.Push(at+time.Duration(r.Int64N(1e5)), e)
	}
}
