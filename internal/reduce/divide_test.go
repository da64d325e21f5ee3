package reduce

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// minusZero is what a sum of t does not change by: -0 of a float, since x + -0 is x for -0 as well.
func minusZero(t Type) uint64 {
	switch t {
	case E4M3, E5M2, F16, BF16, F32, F64:
		return 1 << (8*t.Size() - 1)
	}
	return 0
}

// TestDivideGivesAvg: at every level, Divide of one contribution gives the bits of Avg over it and
// contributions that add nothing. Divide of the sum of all contributions gives their average, where the sum
// was not rounded.
func TestDivideGivesAvg(t *testing.T) {
	here := Levels()
	force(t, Active())
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(allTypes).Draw(rt, "type")
		n := rapid.IntRange(0, 700).Draw(rt, "elements")
		ranks := rapid.IntRange(1, 300).Draw(rt, "ranks")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		srcs := make([][]byte, ranks)
		for i := range srcs {
			srcs[i] = make([]byte, n*typ.Size())
		}
		fill(r, srcs, typ)
		padded := make([][]byte, ranks)
		padded[0] = srcs[0]
		nothing := make([]byte, n*typ.Size())
		for i := range n {
			put(nothing, i, typ.Size(), minusZero(typ))
		}
		for i := 1; i < ranks; i++ {
			padded[i] = nothing
		}
		for _, l := range here {
			require.NoError(rt, Use(l))
			got, intact := window(r, n*typ.Size(), r.IntN(64))
			copy(got, srcs[0])
			Divide(got, typ, ranks)
			require.Equal(rt, plainResult(padded, typ, Avg, 0), got[:len(got):len(got)], "%v of one contribution", l)
			require.True(rt, intact(), "what lies beside dst changed")
			if typ.OwnLast() {
				Fold(got, srcs, typ, Sum, 0)
				Divide(got, typ, ranks)
				require.Equal(rt, plainResult(srcs, typ, Avg, 0), got[:len(got):len(got)], "%v of the sum", l)
			}
		}
	})
}

func TestDivideRefuses(t *testing.T) {
	b := make([]byte, 6)
	assert.Panics(t, func() { Divide(b, F32, 2) }, "no multiple of an element")
	assert.Panics(t, func() { Divide(b, Type(50), 2) })
	assert.Panics(t, func() { Divide(b, F16, 0) })
	assert.NotPanics(t, func() { Divide(nil, F32, 3) })
}

func TestDivideAllocatesNothing(t *testing.T) {
	b := make([]byte, 4096)
	for _, typ := range allTypes {
		assert.Zero(t, testing.AllocsPerRun(10, func() { Divide(b, typ, 3) }), typ.String())
	}
}
