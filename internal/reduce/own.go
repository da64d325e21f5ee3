package reduce

import (
	"fmt"
	"unsafe"
)

// The owner of a result need not send its own contribution: others sum theirs, and the owner adds
// its own. So that this gives the bits of Fold on every path, an owner's contribution comes last
// wherever OwnLast says so: Fold over the result of InOrder, or FoldOthers and then Complete.

// OwnLast says whether an owner adds its own contribution after those of all others: if
// partial results of t are of type t itself. One of a shorter float would have to be rounded
// once more, or travel at twice the length; for these sums stay in rank order.
func (t Type) OwnLast() bool { return t == t.Accumulator() }

// InOrder brings contributions that are in rank order into the order in which the
// result of an owner takes them, and returns them.
func InOrder(srcs [][]byte, owner int, t Type) [][]byte {
	if t.OwnLast() {
		own := srcs[owner]
		copy(srcs[owner:], srcs[owner+1:])
		srcs[len(srcs)-1] = own
	}
	return srcs
}

// FoldOthers makes dst the partial result of all contributions but the owner's: Fold
// without the division of Avg. t must be of those with OwnLast.
func FoldOthers(dst []byte, srcs [][]byte, t Type, op Op, factor float64) {
	checkOwn(t)
	if op == Avg {
		op = Sum
	}
	Fold(dst, srcs, t, op, factor)
}

// Complete sets dst to the result of all ranks, given the partial result of the others and what the
// owner brings itself. Avg divides by ranks, PremulSum multiplies own by factor. dst may be others
// or own, exactly; it must not overlap them otherwise. t must be of those with OwnLast. Complete
// allocates nothing.
func Complete(dst, others, own []byte, t Type, op Op, factor float64, ranks int) {
	checkStep(dst, t, others, t, op)
	checkStep(dst, t, own, t, op)
	checkOwn(t)
	switch {
	case op != PremulSum:
		fold(dst, [][]byte{others, own}, t, op, operand(t, op, ranks, factor), len(dst))
	case unsafe.SliceData(dst) == unsafe.SliceData(others):
		CombineNext(dst, own, t, op, factor)
		Finish(dst, dst, t, op, ranks) // drops what a NaN carries
	default:
		Begin(dst, own, t, op, factor)
		Combine(dst, others, t, op)
	}
}

func checkOwn(t Type) {
	if !t.OwnLast() {
		panic(fmt.Sprintf("reduce: partial results of %v are of %v; want a type that is its own accumulator", t,
			t.Accumulator()))
	}
}
