package reduce

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// steps takes the contributions srcs one by one: next says whether it uses
// CombineNext, and offset how far its memory is from a cache line.
func steps(
	t require.TestingT, r *rand.Rand, srcs [][]byte, typ Type, op Op, factor float64, next bool, offset int,
) []byte {
	n := len(srcs[0])
	wide := n / typ.Size() * typ.Accumulator().Size()
	acc, accIntact := window(r, wide, offset)
	room, roomIntact := window(r, wide, r.IntN(64))
	dst, dstIntact := window(r, n, r.IntN(64))
	Begin(acc, srcs[0], typ, op, factor)
	for _, src := range srcs[1:] {
		if next {
			CombineNext(acc, src, typ, op, factor)
			continue
		}
		Begin(room, src, typ, op, factor)
		Combine(acc, room, typ, op)
	}
	Finish(dst, acc, typ, op, len(srcs))
	require.True(t, roomIntact() && dstIntact(), "what lies beside room or dst changed")
	Finish(acc[:n], acc, typ, op, len(srcs)) // in place
	require.Equal(t, dst, acc[:n:n], "in place")
	require.True(t, accIntact(), "what lies beside acc changed")
	return dst
}

// In the order of Fold the steps give its bits, at every level.
func TestStepsGiveFold(t *testing.T) {
	for _, l := range Levels() {
		t.Run(l.String(), func(t *testing.T) {
			force(t, l)
			r := rand.New(rand.NewPCG(6, uint64(l)))
			for _, typ := range allTypes {
				for _, op := range opsOf(typ) {
					for _, n := range []int{0, 1, 2, 7, 16, 33, 127, 128, 129, 260, 515, 777} {
						for sources := 1; sources <= 5; sources += 2 {
							what := fmt.Sprintf("%v %v, %d sources, %d elements", op, typ, sources, n)
							factor := []float64{2.75, -3.5, 1e-3, math.Inf(1), math.NaN(), -1e30, 1e30}[r.IntN(7)]
							srcs, intact := make([][]byte, sources), make([]func() bool, sources)
							for i := range srcs {
								srcs[i], intact[i] = window(r, n*typ.Size(), r.IntN(64))
							}
							fill(r, srcs, typ)
							want := plainResult(srcs, typ, op, factor)
							for _, next := range []bool{false, true} {
								got := steps(t, r, srcs, typ, op, factor, next, r.IntN(64))
								require.True(t, string(want) == string(got), "%s, next %v: got %x, want %x", what, next, got, want)
							}
							for i := range intact {
								require.True(t, intact[i](), "%s: what lies beside source %d changed", what, i)
							}
						}
					}
				}
			}
		})
	}
}

func TestStepsProperties(t *testing.T) {
	here := Levels()
	force(t, Active())
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(allTypes).Draw(rt, "type")
		op := rapid.SampledFrom(opsOf(typ)).Draw(rt, "op")
		n := rapid.IntRange(0, 600).Draw(rt, "elements")
		sources := rapid.IntRange(1, 12).Draw(rt, "sources")
		factor := rapid.Float64().Draw(rt, "factor")
		offset := rapid.IntRange(0, 63).Draw(rt, "offset")
		next := rapid.Bool().Draw(rt, "next")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		srcs := make([][]byte, sources)
		for i := range srcs {
			srcs[i] = make([]byte, n*typ.Size())
		}
		fill(r, srcs, typ)
		want := plainResult(srcs, typ, op, factor)
		for _, l := range here {
			require.NoError(rt, Use(l))
			require.Equal(rt, want, steps(rt, r, srcs, typ, op, factor, next, offset), "level %v", l)
		}
	})
}

// Partial results that others made of some ranks can be combined: integers in a
// tree, since their order does not matter.
func TestTreeOfIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range []Type{I8, U8, I16, U16, I32, U32, I64, U64} {
			for _, op := range opsOf(typ) {
				n := 531 * typ.Size()
				srcs := [][]byte{make([]byte, n), make([]byte, n), make([]byte, n), make([]byte, n)}
				fill(r, srcs, typ)
				left, right, dst := make([]byte, n), make([]byte, n), make([]byte, n)
				Begin(left, srcs[3], typ, op, 3)
				CombineNext(left, srcs[1], typ, op, 3)
				Begin(right, srcs[2], typ, op, 3)
				CombineNext(right, srcs[0], typ, op, 3)
				Combine(left, right, typ, op)
				Finish(dst, left, typ, op, 4)
				require.Equal(t, plainResult(srcs, typ, op, 3), dst, "%v: %v %v", l, op, typ)
			}
		}
	}
}

// In place, where the types of a step allow it.
func TestBeginInPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range allTypes {
			if typ != typ.Accumulator() {
				continue
			}
			for _, op := range opsOf(typ) {
				src := make([]byte, 531*typ.Size())
				fill(r, [][]byte{src}, typ)
				want := make([]byte, len(src))
				Begin(want, src, typ, op, 3)
				Begin(src, src, typ, op, 3)
				require.Equal(t, want, src, "%v: %v %v", l, op, typ)
			}
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	const elements = 2051
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range []Type{I16, E4M3, E5M2, F16, BF16, F32} {
			src, acc := make([]byte, elements*typ.Size()), make([]byte, elements*typ.Accumulator().Size())
			other := make([]byte, len(acc))
			for _, op := range opsOf(typ) {
				require.Zero(t, testing.AllocsPerRun(20, func() {
					Begin(acc, src, typ, op, 2)
					CombineNext(acc, src, typ, op, 2)
					Combine(acc, other, typ, op)
					Finish(src, acc, typ, op, 3)
				}), "%v %v %v", l, op, typ)
			}
		}
	}
}

func TestStepsRefuseMistakes(t *testing.T) {
	b := make([]byte, 8)
	for message, call := range map[string]func(){
		"reduce: type(12) is no element type":             func() { Begin(b, b, 12, Sum, 0) },
		"reduce: type(13) is no element type":             func() { Combine(b, b, 13, Sum) },
		"reduce: type(14) is no element type":             func() { CombineNext(b, b, 14, Sum, 0) },
		"reduce: type(15) is no element type":             func() { Finish(b, b, 15, Sum, 1) },
		"reduce: op(10) is no operation":                  func() { Begin(b, b, F32, 10, 0) },
		"reduce: op(11) is no operation":                  func() { Combine(b, b, F32, 11) },
		"reduce: op(12) is no operation":                  func() { CombineNext(b, b, F32, 12, 0) },
		"reduce: op(9) is no operation":                   func() { Finish(b, b, F32, 9, 1) },
		"reduce: band of f64: want an integer type":       func() { Begin(b, b, F64, Band, 0) },
		"reduce: 7 bytes are no multiple of the 4 of f32": func() { Begin(b[:7], b[:7], F32, Sum, 0) },
		"reduce: 6 bytes are no multiple of the 4 of f32": func() { Combine(b[:6], b[:6], BF16, Sum) },
		"reduce: 3 bytes are no multiple of the 2 of f16": func() { CombineNext(b[:6], b[:3], F16, Sum, 0) },
		"reduce: 5 bytes are no multiple of the 4 of f32": func() { Finish(b[:2], b[:5], BF16, Sum, 1) },
		"reduce: 4 bytes of f32 for 4 of f16; want 8":     func() { Begin(b[:4], b[:4], F16, Sum, 0) },
		"reduce: 4 bytes of f32 for 8 of f32; want 8":     func() { Combine(b[:4], b, F32, Sum) },
		"reduce: 8 bytes of f32 for 2 of bf16; want 4":    func() { CombineNext(b, b[:2], BF16, Sum, 0) },
		"reduce: 8 bytes of bf16 for 8 of f32; want 4":    func() { Finish(b, b, BF16, Sum, 1) },
		"reduce: the result of 0 ranks; want at least 1":  func() { Finish(b, b, F32, Sum, 0) },
	} {
		require.PanicsWithValue(t, message, call)
	}
}

// Every kernel converts every half to a partial result and back, as it is and
// scaled by factors that make it round, overflow and vanish.
func TestStepsConvertEveryHalf(t *testing.T) {
	src, acc, dst := make([]byte, 2<<16), make([]byte, 4<<16), make([]byte, 2<<16)
	for h := range 1 << 16 {
		put(src, h, 2, uint64(h))
	}
	for _, typ := range []Type{F16, BF16} {
		for _, factor := range []float64{1, -1, 1.0 / 3, 1 + 0x1p-11, 1 + 0x1p-8, 1 - 0x1p-20, 0x1p-10, 0x1p14, 3e38, 1e-38,
			0} {
			want := plainResult([][]byte{src}, typ, PremulSum, factor)
			for _, l := range Levels() {
				force(t, l)
				Begin(acc, src, typ, PremulSum, factor)
				Finish(dst, acc, typ, PremulSum, 1)
				require.Equal(t, want, dst, "%v, %v times %v", l, typ, factor)
				for h := range 1 << 16 { // what a sum begins with; no factor makes it -0
					put(acc, h, 4, 1<<31)
				}
				CombineNext(acc, src, typ, PremulSum, factor)
				Finish(dst, acc, typ, PremulSum, 1)
				require.Equal(t, want, dst, "%v, -0 and %v times %v", l, typ, factor)
			}
		}
	}
}
