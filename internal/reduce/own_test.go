package reduce

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the others sum and the owner completes is what Fold makes of all in that
// order, at every level, wherever the result is put.
func TestCompleteGivesFold(t *testing.T) {
	for _, l := range Levels() {
		t.Run(l.String(), func(t *testing.T) {
			force(t, l)
			r := rand.New(rand.NewPCG(8, uint64(l)))
			for _, typ := range allTypes {
				for _, op := range opsOf(typ) {
					if !typ.OwnLast() {
						continue
					}
					for _, n := range []int{0, 1, 7, 33, 128, 515} {
						for ranks := 2; ranks <= 5; ranks++ {
							factor := []float64{2.75, -3.5, math.Inf(1), math.NaN(), 1e30}[r.IntN(5)]
							srcs := make([][]byte, ranks)
							for i := range srcs {
								srcs[i], _ = window(r, n*typ.Size(), r.IntN(64))
							}
							fill(r, srcs, typ)
							owner := r.IntN(ranks)
							order := InOrder(slices.Clone(srcs), owner, typ)
							want := plainResult(order, typ, op, factor)
							completeAt(t, r, order, typ, op, factor, want,
								fmt.Sprintf("%v %v, owner %d of %d, %d elements", op, typ, owner, ranks, n))
						}
					}
				}
			}
		})
	}
}

// completeAt puts the result apart, where the partial one lies, and where the own contribution
// does.
func completeAt(t *testing.T, r *rand.Rand, order [][]byte, typ Type, op Op, factor float64, want []byte, what string) {
	t.Helper()
	n, last := len(want), len(order)-1
	for where := range 3 {
		others, othersIntact := window(r, n, r.IntN(64))
		own, ownIntact := window(r, n, r.IntN(64))
		dst, dstIntact := window(r, n, r.IntN(64))
		copy(own, order[last])
		FoldOthers(others, order[:last], typ, op, factor)
		at := [][]byte{dst, others, own}[where]
		Complete(at, others, own, typ, op, factor, len(order))
		require.Equal(t, want, at[:n:n], "%s, at %d", what, where)
		require.True(t, othersIntact() && ownIntact() && dstIntact(), "%s, at %d: what lies beside changed", what, where)
		if where != 2 {
			require.Equal(t, order[last][:n:n], own[:n:n], "%s: the own contribution changed", what)
		}
	}
}

func TestInOrder(t *testing.T) {
	a, b, c := []byte{1}, []byte{2}, []byte{3}
	for owner, want := range [][][]byte{{b, c, a}, {a, c, b}, {a, b, c}} {
		assert.Equal(t, want, InOrder([][]byte{a, b, c}, owner, F32))
		assert.Equal(t, [][]byte{a, b, c}, InOrder([][]byte{a, b, c}, owner, BF16))
	}
	assert.Equal(t, [][]byte{a}, InOrder([][]byte{a}, 0, I8))
}

// A rounded partial result is not what the sum in one go would be: these types are refused.
func TestShortFloatsAreNotCompleted(t *testing.T) {
	for _, typ := range []Type{F16, BF16, E4M3, E5M2} {
		assert.False(t, typ.OwnLast())
		b := make([]byte, 8)
		assert.Panics(t, func() { FoldOthers(b, [][]byte{b}, typ, Sum, 0) }, typ.String())
		assert.Panics(t, func() { Complete(b, b, make([]byte, 8), typ, Sum, 0, 2) }, typ.String())
	}
	b := make([]byte, 8)
	assert.Panics(t, func() { Complete(b, b[:4], make([]byte, 8), F32, Sum, 0, 2) })
	assert.Panics(t, func() { Complete(b, b, make([]byte, 4), F32, Sum, 0, 2) })
}

func TestCompleteAllocatesNothing(t *testing.T) {
	a, b, c := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	for _, op := range opsOf(F32) {
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			Complete(a, b, c, F32, op, 2, 3)
			Complete(b, b, c, F32, op, 2, 3)
			Complete(c, b, c, F32, op, 2, 3)
		}), op.String())
	}
}
