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
		whole("F32", floatOps("F32")),
		whole("F64", floatOps("F64")),
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

// float16 widens half a vector of memory into each of two vectors of f32.
func float16() element {
	return element{
		name: "F16", parts: 2, ops: floatOps("F16"),
		constants: func(*kernel) {},
		load: func(k *kernel, from operand.Mem, parts []reg.VecVirtual) {
			k.VCVTPH2PS(from, parts[0])
			k.VCVTPH2PS(from.Offset(k.width/2), parts[1])
		},
		store: func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
			const nearestEven = 0
			for p, v := range parts {
				half := k.halfVector()
				k.VCVTPS2PH(operand.Imm(nearestEven), v, half)
				k.put(half, to.Offset(p*k.width/2))
			}
		},
	}
}

// bfloat16 widens the even elements of a vector into one vector of f32 and the
// odd ones into another: both are the upper halves of a lane, so that widening
// needs no shuffle. A NaN is canonical by the time it is stored (see op), and
// does not overflow when it is rounded.
func bfloat16() element {
	return element{
		name: "BF16", parts: 2, ops: floatOps("BF16"),
		constants: func(k *kernel) {
			k.upper = k.constant(4, 0xffff0000)
			k.halfwayULP = k.constant(4, 0x7fff)
		},
		load: func(k *kernel, from operand.Mem, parts []reg.VecVirtual) {
			k.VMOVUPS(from, parts[1])
			k.VPSLLD(operand.Imm(16), parts[1], parts[0])
			k.VANDPS(parts[1], k.upper, parts[1])
		},
		store: func(k *kernel, parts []reg.VecVirtual, to operand.Mem) {
			for _, v := range parts {
				k.roundBF16(v)
			}
			k.VPSRLD(operand.Imm(16), parts[0], parts[0])
			k.VANDPS(parts[1], k.upper, parts[1])
			k.VORPS(parts[0], parts[1], parts[0])
			k.put(parts[0], to)
		},
	}
}

// roundBF16 emits what makes the upper halves of v the nearest bfloat16
// numbers, ties to even.
func (k *kernel) roundBF16(v reg.VecVirtual) {
	odd := k.vector()
	k.VPSLLD(operand.Imm(15), v, odd)
	k.VPSRLD(operand.Imm(31), odd, odd)
	k.VPADDD(odd, v, v)
	k.VPADDD(k.halfwayULP, v, v)
}
