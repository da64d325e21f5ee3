package reduce

import (
	"fmt"
	"math"
)

// Fold in steps, for who cannot wait until all contributions are there: Begin
// with one, Combine or CombineNext with the others, Finish. In the order of
// Fold this gives the bits of Fold; in another one those of floating-point
// sums may differ.
//
// A partial result has as many elements as a contribution, of the type that
// Accumulator returns. All slices need no alignment and may be empty. None of
// the steps allocates, and any number of goroutines may take them at once. A
// violation of what a step demands is a mistake of the caller: it panics and
// says which.

// Accumulator returns the type in which partial results of t are kept: F32 for
// the floats that are shorter, so that they are rounded once; else t itself.
func (t Type) Accumulator() Type {
	if !t.Valid() {
		return t
	}
	return known[t.position()].sum
}

// Begin makes dst the partial result of one contribution, src (of type t,
// multiplied by factor for PremulSum as in Fold). dst may be src if t is its
// own accumulator; they must not overlap otherwise.
func Begin(dst, src []byte, t Type, op Op, factor float64) {
	checkStep(dst, t.Accumulator(), src, t, op)
	scalar := operand(t, op, 1, factor)
	switch {
	case t != t.Accumulator():
		at := begin.run(dst, src, len(src), t, op, scalar)
		plainWiden(dst, src, at, t, op, math.Float32frombits(uint32(scalar)))
	case op == PremulSum:
		fold(dst, [][]byte{src}, t, op, scalar, len(dst))
	default:
		copy(dst, src)
	}
}

// Combine sets dst to op over dst and src, two partial results of type t; Avg
// and PremulSum add. dst must not overlap src.
func Combine(dst, src []byte, t Type, op Op) {
	accumulator := t.Accumulator()
	checkStep(dst, accumulator, src, accumulator, op)
	fold(dst, [][]byte{dst, src}, accumulator, op.joins(), 0, len(dst))
}

// CombineNext is Combine with what Begin makes of src, without the room that
// this would take.
func CombineNext(dst, src []byte, t Type, op Op, factor float64) {
	if t == t.Accumulator() && op != PremulSum {
		Combine(dst, src, t, op)
		return
	}
	checkStep(dst, t.Accumulator(), src, t, op)
	from := next.run(dst, src, len(src), t, op, operand(t, op, 1, factor))
	if from == len(src) {
		return // at once: the room on the stack is cleared on entry
	}
	var room [8 * plainBlock]byte
	size, wide := t.Size(), t.Accumulator().Size()
	for to := 0; from < len(src); from = to {
		to = min(from+plainBlock*size, len(src))
		x, acc := room[:(to-from)/size*wide], dst[from/size*wide:to/size*wide]
		Begin(x, src[from:to], t, op, factor)
		Combine(acc, x, t, op)
	}
}

// Finish makes dst, elements of type t, the result of the contributions of
// ranks that src is the partial result of; Avg divides by ranks. dst may start
// where src does; they must not overlap otherwise.
func Finish(dst, src []byte, t Type, op Op, ranks int) {
	checkStep(dst, t, src, t.Accumulator(), op)
	checkRanks(ranks)
	scalar := operand(t, op, ranks, 1)
	if op != Avg {
		op = Sum // of one source: floats still drop what a NaN carries
	}
	if t != t.Accumulator() {
		at := finish.run(dst, src, len(dst), t, op, scalar)
		plainNarrow(dst, src, at, t, op, math.Float32frombits(uint32(scalar)))
		return
	}
	fold(dst, [][]byte{src}, t, op, scalar, len(dst))
}

// Divide divides every element of dst, of type t, as Avg does at its end for so many ranks, at least 1.
// So the sum of sums, which no Fold of all contributions has made, becomes their average: for types that
// are their own accumulators, Divide after a Fold with Sum gives the bits of Fold with Avg. One of a
// shorter float is rounded once more. dst may be empty and needs no alignment. Divide allocates nothing.
func Divide(dst []byte, t Type, ranks int) {
	checkStep(dst, t, dst, t, Avg)
	checkRanks(ranks)
	fold(dst, [][]byte{dst}, t, Avg, operand(t, Avg, ranks, 0), len(dst))
}

func checkRanks(ranks int) {
	if ranks < 1 {
		panic(fmt.Sprintf("reduce: the result of %d ranks; want at least 1", ranks))
	}
}

// joins returns the operation that combines partial results of o.
func (o Op) joins() Op {
	if o == Avg || o == PremulSum {
		return Sum
	}
	return o
}

// run takes the step by a kernel, if there is one, as far as it goes in n bytes
// of contributions, and returns where it stopped.
func (s step) run(dst, src []byte, n int, t Type, op Op, scalar uint64) int {
	e := active.Load()
	k := e.steps[s][t.position()][op]
	if k == nil {
		return 0
	}
	return run(k, dst, [][]byte{src}, 0, n, e.vector*t.Size()/t.Accumulator().Size(), scalar)
}

// checkStep panics if dst is not as many elements of type to as src of type from.
func checkStep(dst []byte, to Type, src []byte, from Type, op Op) {
	switch {
	case !from.Valid():
		panic(fmt.Sprintf("reduce: %v is no element type", from))
	case !op.Valid():
		panic(fmt.Sprintf("reduce: %v is no operation", op))
	case !op.Takes(from):
		panic(fmt.Sprintf("reduce: %v of %v: want an integer type", op, from))
	case len(src)%from.Size() != 0:
		panic(fmt.Sprintf("reduce: %d bytes are no multiple of the %d of %v", len(src), from.Size(), from))
	case len(dst) != len(src)/from.Size()*to.Size():
		panic(fmt.Sprintf("reduce: %d bytes of %v for %d of %v; want %d", len(dst), to, len(src), from,
			len(src)/from.Size()*to.Size()))
	}
}
