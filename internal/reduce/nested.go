package reduce

import "slices"

// Nested is a reduction of all ranks made of two: of the ranks of each host, and then of the hosts' results.
// The owner's host counts as the owner on the second level, on the first the rank of each host that has the
// owner's place there. Where not all hosts have that place, it is the place modulo the number of ranks of the
// smallest host.
type Nested struct {
	Within, Across Op
	Factor         float64 // of Within, if that is PremulSum
	Divide         bool    // the result by the number of ranks, see Divide
}

// Nest returns the two reductions. A mean of short floats is made of inputs that were multiplied
// first: the sum of a host's might be more than the type holds.
func Nest(t Type, op Op, factor float64, ranks int) Nested {
	switch {
	case op == PremulSum:
		return Nested{Within: PremulSum, Across: Sum, Factor: factor}
	case op == Avg && t.OwnLast():
		return Nested{Within: Sum, Across: Sum, Divide: true}
	case op == Avg:
		return Nested{Within: PremulSum, Across: Sum, Factor: 1 / float64(ranks)}
	}
	return Nested{Within: op, Across: op}
}

// FoldNested sets dst to what an owner gets of the contributions of all ranks, which hosts reduce in two
// levels. It says what the bits are; it is not fast.
func FoldNested(dst []byte, srcs [][]byte, hosts [][]int, owner int, t Type, op Op, factor float64) {
	l := Nest(t, op, factor, len(srcs))
	own, place, columns := 0, -1, len(srcs)
	for h, ranks := range hosts {
		columns = min(columns, len(ranks))
		if i := slices.Index(ranks, owner); i >= 0 {
			own, place = h, i
		}
	}
	memory := make([]byte, len(hosts)*len(dst))
	partial := make([][]byte, len(hosts))
	for h, ranks := range hosts {
		local := make([][]byte, len(ranks))
		for i, r := range ranks {
			local[i] = srcs[r]
		}
		partial[h] = memory[h*len(dst):][:len(dst)]
		Fold(partial[h], InOrder(local, place%columns, t), t, l.Within, l.Factor)
	}
	Fold(dst, InOrder(partial, own, t), t, l.Across, 0)
	if l.Divide {
		Divide(dst, t, len(srcs))
	}
}
