package mesh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestAsk: any rank hears all others, and one that does not answer keeps nobody once it is not waited for.
func TestAsk(t *testing.T) {
	const size, mute = 11, 4
	g := newGraph(t, size, time.Minute)
	var want []Answer
	for r, m := range g.mesh {
		if r == mute {
			continue
		}
		page := fmt.Appendf(nil, "page of rank %d", r)
		m.Answer(func() []byte { return page })
		want = append(want, Answer{r, page})
	}
	for _, m := range g.mesh {
		require.Equal(t, want, m.Ask(t.Context(), []int{mute}))
	}
	over, end := context.WithCancel(t.Context())
	end()
	require.Less(t, len(g.mesh[0].Ask(over, nil)), size)

	g.mesh[mute].Answer(func() []byte { return make([]byte, maxPage+1) })
	require.Equal(t, want, g.mesh[0].Ask(t.Context(), []int{mute}), "one whose page is too long")
	g.mesh[mute].Answer(func() []byte { return []byte("now") })
	require.Len(t, g.mesh[0].Ask(t.Context(), nil), size)
}

// TestManyAsk at once: each hears all, every rank passes each question on once, and what was asked is forgotten in
// time.
func TestManyAsk(t *testing.T) {
	const size, times = 11, 20
	g := newGraph(t, size, time.Minute)
	var made atomic.Int64
	for _, m := range g.mesh {
		m.Answer(func() []byte { made.Add(1); return []byte("page") })
	}
	var all errgroup.Group
	for _, m := range g.mesh {
		all.Go(func() error {
			for range times {
				if n := len(m.Ask(t.Context(), nil)); n != size {
					return fmt.Errorf("%d ranks have answered, want %d", n, size)
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.EqualValues(t, size*size*times, made.Load(), "a question is new once")
	for range mostAsks {
		g.mesh[0].ask(asked{number: rand.Uint64()}, 0)
	}
	g.mesh[0].mu.Lock()
	defer g.mesh[0].mu.Unlock()
	require.Len(t, g.mesh[0].asks.known, mostAsks)
}
