package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// emitLimits writes the kernels that bench measures the machine with. touch is
// the loop of a kernel that sums, without the sum; the others read or write one
// slice and do nothing else.
func emitLimits(ctx *build.Context, l level) {
	untouched := op{
		name: "Nothing", lane: "Bytes", constants: nothing, loaded: keep, finish: keep,
		combine: func(*kernel, reg.VecVirtual, reg.VecVirtual) {},
	}
	emit(ctx, l, whole("U8", nil), untouched, "touch"+l.name, false)
	emit(ctx, l, whole("U8", nil), untouched, "touchAround"+l.name, true)
	emitSweep(ctx, l, "read", "reads all of s", func(k *kernel, at operand.Mem) {
		k.VMOVUPS(at, k.vector())
	})
	emitSweep(ctx, l, "readAhead", "reads all of s and prefetches", func(k *kernel, at operand.Mem) {
		if at.Disp%cacheLine == 0 {
			k.PREFETCHT0(at.Offset(ahead))
		}
		k.VMOVUPS(at, k.vector())
	})
	emitSweep(ctx, l, "writeAround", "sets s, which is aligned to a vector, to 0 around the caches",
		func(k *kernel, at operand.Mem) {
			k.VMOVNTPS(k.zero, at)
		})
}

// kilobyte is what a sweep does in one turn, in bytes.
const kilobyte = 1024

// emitSweep writes one of them.
func emitSweep(ctx *build.Context, l level, name, doc string, vector func(k *kernel, at operand.Mem)) {
	k := &kernel{Context: ctx, level: l}
	k.Function(name + l.name)
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(s []byte)")
	k.Pragma("noescape")
	k.Doc(name + l.name + " " + doc + ", in whole kilobytes.")
	at := k.Load(k.Param("s").Base(), k.GP64())
	left := k.Load(k.Param("s").Len(), k.GP64())
	k.zero = k.vector()
	k.VXORPS(k.zero, k.zero, k.zero)
	k.Label("loop")
	k.SUBQ(operand.U32(kilobyte), left)
	k.JLT(operand.LabelRef("done"))
	for disp := 0; disp < kilobyte; disp += l.width {
		vector(k, operand.Mem{Base: at, Disp: disp})
	}
	k.ADDQ(operand.U32(kilobyte), at)
	k.JMP(operand.LabelRef("loop"))
	k.Label("done")
	k.SFENCE()
	k.VZEROUPPER()
	k.RET()
}
