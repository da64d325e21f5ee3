package mesh

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAsk: any rank hears all others, and one that does not answer keeps nobody once it is not waited for.
func TestAsk(t *testing.T) {
	const size, mute = 11, 4
	g := newGraph(t, size, time.Minute)
	var want []Answer
	var others []int
	for r, m := range g.mesh {
		if r == mute {
			continue
		}
		page := fmt.Appendf(nil, "page of rank %d", r)
		m.Answer(func() []byte { return page })
		want, others = append(want, Answer{r, page}), append(others, r)
	}
	for _, m := range g.mesh {
		require.Equal(t, want, m.Ask(t.Context(), others))
	}
	over, end := context.WithCancel(t.Context())
	end()
	require.Less(t, len(g.mesh[0].Ask(over, nil)), size)

	g.mesh[mute].Answer(func() []byte { return make([]byte, maxPage+1) })
	require.Equal(t, want, g.mesh[0].Ask(t.Context(), others), "one whose page is too long")
	g.mesh[mute].Answer(func() []byte { return []byte("now") })
	require.Len(t, g.mesh[0].Ask(t.Context(), nil), size)
	for range 2 * mostAsks {
		g.mesh[1].Ask(t.Context(), others)
	}
	g.mesh[2].mu.Lock()
	defer g.mesh[2].mu.Unlock()
	require.LessOrEqual(t, len(g.mesh[2].asks.known), mostAsks, "what was asked long ago is forgotten")
}
