package advise

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// far is beyond the last moment that the tests draw.
const far = 60

// drawSpans draws some, empty and reversed ones among them.
func drawSpans(t *rapid.T, label string) []span {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) span {
		return span{rapid.Int64Range(0, far-1).Draw(t, "from"), rapid.Int64Range(0, far-1).Draw(t, "to")}
	}), 0, 12).Draw(t, label)
}

// moments marks which are in spans, one by one.
func moments(all []span) (in [far]bool) {
	for _, s := range all {
		for at := s.from; at < s.to; at++ {
			in[at] = true
		}
	}
	return in
}

func requireDisjoint(t *rapid.T, all []span) {
	for i, s := range all {
		require.Less(t, s.from, s.to)
		if i > 0 {
			require.Less(t, all[i-1].to, s.from+1)
		}
	}
}

func TestSpansMomentByMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSpans(t, "a"), drawSpans(t, "b")
		inA, inB := moments(a), moments(b)
		a, b = union(a), union(b)
		requireDisjoint(t, a)
		require.Equal(t, inA, moments(a), "union")
		var both, left [far]bool
		n := int64(0)
		for at := range inA {
			both[at], left[at] = inA[at] && inB[at], inA[at] && !inB[at]
			if inA[at] {
				n++
			}
		}
		require.Equal(t, n, length(a))
		require.Equal(t, both, moments(intersection(a, b)), "intersection")
		require.Equal(t, left, moments(without(a, b)), "without")
		requireDisjoint(t, intersection(a, b))
		requireDisjoint(t, without(a, b))
	})
}

// TestMergedSpansTakeNoMemory: operators that touch become one.
func TestMergedSpansTakeNoMemory(t *testing.T) {
	var m merged
	held := 0
	for at := range int64(1 << 17) {
		held += m.add(span{at, at + 1})
		require.LessOrEqual(t, held, 1<<12+2)
		require.Len(t, m.all, held)
	}
	require.Equal(t, []span{{0, 1 << 17}}, union(m.all))
}
