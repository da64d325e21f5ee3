package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// element is how one element type travels between memory and the accumulators.
type element struct {
	name      string // as in package reduce
	parts     int    // accumulators for one vector of memory
	constants func(*kernel)
	load      func(k *kernel, from operand.Mem, parts []reg.VecVirtual)
	store     func(k *kernel, parts []reg.VecVirtual, to operand.Mem)
	ops       []op
}

func elements(l level) []element {
	return []element{
		whole("I8", integerOps(l, "I8")),
		whole("U8", integerOps(l, "U8")),
		whole("I32", integerOps(l, "I32")),
		whole("U32", integerOps(l, "U32")),
		whole("I64", integerOps(l, "I64")),
		whole("U64", integerOps(l, "U64")),
		float16(),
		float("F32", single),
		float("F64", double),
		bfloat16(),
		whole("I16", integerOps(l, "I16")),
		whole("U16", integerOps(l, "U16")),
	}
}

// whole is a type that is combined as it lies in memory.
func whole(name string, ops []op) element {
	return element{
		name: name, parts: 1, ops: ops,
		constants: func(*kernel) {},
		load: func(k *kernel, from operand.Mem, parts []reg.VecVirtual) {
			k.VMOVUPS(from, parts[0])
		},
		store: func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
			k.put(parts[0], to)
		},
	}
}

// float is a floating-point type that is its own accumulate type.
func float(name string, f floats) element {
	e := whole(name, floatOps(name))
	e.constants = f.constants
	e.store = func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
		f.canonical(k, parts[0])
		k.put(parts[0], to)
	}
	return e
}

// float16 widens half a vector of memory into each of two vectors of f32.
func float16() element {
	return element{
		name: "F16", parts: 2, ops: floatOps("F16"),
		constants: single.constants,
		load: func(k *kernel, from operand.Mem, parts []reg.VecVirtual) {
			k.VCVTPH2PS(from, parts[0])
			k.VCVTPH2PS(from.Offset(k.width/2), parts[1])
		},
		store: func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
			const nearestEven = 0
			for p, v := range parts {
				single.canonical(k, v)
				half := k.halfVector()
				k.VCVTPS2PH(operand.Imm(nearestEven), v, half)
				k.put(half, to.Offset(p*k.width/2))
			}
		},
	}
}

// bfloat16 widens the even elements of a vector into one vector of f32 and the
// odd ones into another: both are the upper halves of a lane, so that widening
// needs no shuffle.
func bfloat16() element {
	return element{
		name: "BF16", parts: 2, ops: floatOps("BF16"),
		constants: func(k *kernel) {
			k.upper = k.constant(4, 0xffff0000)
			k.roundingBF16()
		},
		load: func(k *kernel, from operand.Mem, parts []reg.VecVirtual) {
			k.VMOVUPS(from, parts[1])
			k.VPSLLD(operand.Imm(16), parts[1], parts[0])
			k.VANDPS(parts[1], k.upper, parts[1])
		},
		store: func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
			even, odd := k.roundBF16(parts[0]), k.roundBF16(parts[1])
			k.VPSRLD(operand.Imm(16), even, even)
			if k.width == 64 {
				const orAnd = 0b11111000 // first | second & third
				k.VPTERNLOGD(operand.U8(orAnd), k.upper, odd, even)
			} else {
				k.VANDPS(odd, k.upper, odd)
				k.VORPS(even, odd, even)
			}
			k.put(even, to)
		},
	}
}

// roundingBF16 emits the constants of roundBF16.
func (k *kernel) roundingBF16() {
	single.constants(k)
	k.belowHalf = k.constant(4, 0x7fff)
	if k.width == 64 {
		k.half, k.unit = k.constant(4, 0x8000), k.constant(4, 0x10000)
	}
}

// roundBF16 emits code for a vector that has, in its upper halves, the bfloat16
// numbers nearest to v, ties to even: half a unit is added to odd ones and a
// bit less to even ones. It may change v. A NaN becomes the canonical one,
// which such an addition does not change; AVX-512 leaves it out instead.
func (k *kernel) roundBF16(v reg.VecVirtual) reg.VecVirtual {
	if k.width == 64 {
		const ordered = 7
		number, odd, rounded := k.K(), k.K(), k.vector()
		k.VCMPPS(operand.Imm(ordered), v, v, number)
		k.VPTESTMD(k.unit, v, number, odd)
		k.VMOVAPS(k.nan, rounded)
		k.VPADDD(k.belowHalf, v, number, rounded)
		k.VPADDD(k.half, v, odd, rounded)
		return rounded
	}
	single.canonical(k, v)
	odd := k.vector()
	k.VPSLLD(operand.Imm(15), v, odd)
	k.VPSRLD(operand.Imm(31), odd, odd)
	k.VPADDD(odd, v, v)
	k.VPADDD(k.belowHalf, v, v)
	return v
}
