package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// op is one operation on vectors of one lane type.
type op struct {
	name      string // as in package reduce
	lane      string
	scalar    func(c *build.Context, x, v operand.Op) // broadcast, or nil without a scalar
	constants func(*kernel)
	loaded    func(k *kernel, v reg.VecVirtual)
	combine   func(k *kernel, v, acc reg.VecVirtual)
	finish    func(k *kernel, acc reg.VecVirtual)
}

// isSum says whether o is what gradients are reduced with: these operations
// have streaming kernels.
func (o op) isSum() bool { return o.name == "Sum" || o.name == "Avg" || o.name == "PremulSum" }

// binary is an instruction with two sources and one destination.
type binary = func(c *build.Context, ops ...operand.Op)

func nothing(*kernel)              {}
func keep(*kernel, reg.VecVirtual) {}
func with(b binary) func(*kernel, reg.VecVirtual, reg.VecVirtual) {
	return func(k *kernel, v, acc reg.VecVirtual) { b(k.Context, v, acc, acc) }
}

// floats is the arithmetic of one accumulate type.
type floats struct {
	add, mul, min, div binary
	broadcast          func(c *build.Context, ops ...operand.Op)
	size               int
	sign, nan          uint64
}

var (
	single = floats{
		add: (*build.Context).VADDPS, mul: (*build.Context).VMULPS,
		min: (*build.Context).VMINPS, div: (*build.Context).VDIVPS,
		broadcast: (*build.Context).VPBROADCASTD,
		size:      4, sign: 1 << 31, nan: 0x7fc00000,
	}
	double = floats{
		add: (*build.Context).VADDPD, mul: (*build.Context).VMULPD,
		min: (*build.Context).VMINPD, div: (*build.Context).VDIVPD,
		broadcast: (*build.Context).VPBROADCASTQ,
		size:      8, sign: 1 << 63, nan: 0x7ff8000000000000,
	}
)

// floatOps are all operations on a floating-point type.
func floatOps(lane string) []op {
	f := single
	if lane == "F64" {
		f = double
	}
	broadcast := func(c *build.Context, x, v operand.Op) { f.broadcast(c, x, v) }
	flip := func(k *kernel, v reg.VecVirtual) { k.VXORPS(k.sign, v, v) }
	return []op{
		{name: "Sum", lane: lane, constants: nothing, loaded: keep, combine: with(f.add), finish: keep},
		{name: "Prod", lane: lane, constants: nothing, loaded: keep, combine: with(f.mul), finish: keep},
		{
			name: "Max", lane: lane, // max(a, b) = -min(-a, -b)
			constants: func(k *kernel) { k.sign = k.constant(f.size, f.sign) },
			loaded:    flip, combine: f.minimum, finish: flip,
		},
		{name: "Min", lane: lane, constants: nothing, loaded: keep, combine: f.minimum, finish: keep},
		{
			name: "Avg", lane: lane, scalar: broadcast, constants: nothing, loaded: keep, combine: with(f.add),
			finish: func(k *kernel, acc reg.VecVirtual) { f.div(k.Context, k.scalar, acc, acc) },
		},
		{
			name: "PremulSum", lane: lane, scalar: broadcast, constants: nothing,
			loaded:  func(k *kernel, v reg.VecVirtual) { f.mul(k.Context, k.scalar, v, v) },
			combine: with(f.add), finish: keep,
		},
	}
}

// constants emits what canonical needs.
func (f floats) constants(k *kernel) { k.nan = k.constant(f.size, f.nan) }

// minimum emits acc = min(acc, v) where NaN wins and -0 is less than +0. The
// instruction returns its second source when one is NaN or both are zero, so
// both orders are tried. They differ only in these cases, and there their union
// is the wanted result (NaN or anything is NaN, -0 or +0 is -0).
func (f floats) minimum(k *kernel, v, acc reg.VecVirtual) {
	swapped := k.vector()
	f.min(k.Context, acc, v, swapped)
	f.min(k.Context, v, acc, acc)
	k.VORPS(swapped, acc, acc)
}

// canonical emits acc = the canonical NaN wherever acc is NaN. It comes before
// every store: an addition of two NaN keeps one that depends on the order of
// its operands, and the result must not depend on it.
func (f floats) canonical(k *kernel, acc reg.VecVirtual) {
	const unordered = 3
	switch {
	case k.width == 64 && f.size == 4:
		mask := k.K()
		k.VCMPPS(operand.Imm(unordered), acc, acc, mask)
		k.VMOVAPS(k.nan, mask, acc)
	case k.width == 64:
		mask := k.K()
		k.VCMPPD(operand.Imm(unordered), acc, acc, mask)
		k.VMOVAPD(k.nan, mask, acc)
	case f.size == 4:
		mask := k.vector()
		k.VCMPPS(operand.Imm(unordered), acc, acc, mask)
		k.VBLENDVPS(mask, k.nan, acc, acc)
	default:
		mask := k.vector()
		k.VCMPPD(operand.Imm(unordered), acc, acc, mask)
		k.VBLENDVPD(mask, k.nan, acc, acc)
	}
}

// integerOps are the operations for which the level has an instruction. Signed
// and unsigned types of one size share the operations that wrap, and all types the bitwise ones.
func integerOps(l level, lane string) []op {
	type c = build.Context
	add := map[string]binary{"8": (*c).VPADDB, "16": (*c).VPADDW, "32": (*c).VPADDD, "64": (*c).VPADDQ}
	mul := map[string]binary{"16": (*c).VPMULLW, "32": (*c).VPMULLD}
	broadcast := map[string]binary{"16": (*c).VPBROADCASTW, "32": (*c).VPBROADCASTD, "64": (*c).VPBROADCASTQ}
	most := map[string]binary{
		"I8": (*c).VPMAXSB, "I16": (*c).VPMAXSW, "I32": (*c).VPMAXSD,
		"U8": (*c).VPMAXUB, "U16": (*c).VPMAXUW, "U32": (*c).VPMAXUD,
	}
	least := map[string]binary{
		"I8": (*c).VPMINSB, "I16": (*c).VPMINSW, "I32": (*c).VPMINSD,
		"U8": (*c).VPMINUB, "U16": (*c).VPMINUW, "U32": (*c).VPMINUD,
	}
	if l == avx512 {
		mul["64"] = (*c).VPMULLQ
		most["I64"], most["U64"] = (*c).VPMAXSQ, (*c).VPMAXUQ
		least["I64"], least["U64"] = (*c).VPMINSQ, (*c).VPMINUQ
	}
	size := lane[1:]
	simple := func(name, lane string, b binary) op {
		return op{name: name, lane: lane, constants: nothing, loaded: keep, combine: with(b), finish: keep}
	}
	ops := []op{simple("Sum", size, add[size])}
	if b := mul[size]; b != nil {
		premul := simple("PremulSum", size, add[size])
		premul.scalar = func(c *build.Context, x, v operand.Op) { broadcast[size](c, x, v) }
		premul.loaded = func(k *kernel, v reg.VecVirtual) { b(k.Context, k.scalar, v, v) }
		ops = append(ops, simple("Prod", size, b), premul)
	}
	if most[lane] != nil {
		ops = append(ops, simple("Max", lane, most[lane]), simple("Min", lane, least[lane]))
	}
	return append(ops, simple("Band", "Bits", (*c).VANDPS), simple("Bor", "Bits", (*c).VORPS),
		simple("Bxor", "Bits", (*c).VXORPS))
}
