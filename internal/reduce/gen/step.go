package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unrolled is how many vectors a kernel of a step takes in one turn. They do
// not depend on each other, so that the processor overlaps them.
const unrolled = 4

// step is a step of a reduction that works on one source and converts between
// contributions and partial results.
type step struct {
	name     string // as in package reduce, and the verb of its kernels
	doc      string
	finishes bool // dst holds contributions and the source partial results, not the reverse
	// same returns the operation with the same kernel as o; "" if there is none.
	same   func(o string, c conversion) string
	vector func(k *kernel, c conversion, o op, dst, src operand.Mem)
}

var steps = []step{
	{
		name: "begin", doc: "makes dst the partial result of",
		same: func(o string, c conversion) string {
			switch {
			case c.scale == 1:
				return ""
			case o == "PremulSum":
				return o
			}
			return "Sum"
		},
		vector: func(k *kernel, c conversion, o op, dst, src operand.Mem) {
			v := k.vector()
			c.load(k, src, v)
			o.loaded(k, v)
			k.VMOVUPS(v, dst)
		},
	},
	{
		name: "next", doc: "adds to the partial result dst",
		same: func(o string, c conversion) string {
			switch {
			case o == "PremulSum":
				return o
			case c.scale == 2 && (o == "Sum" || o == "Avg"):
				return "Sum"
			}
			return ""
		},
		vector: func(k *kernel, c conversion, o op, dst, src operand.Mem) {
			v, acc := k.vector(), k.vector()
			c.load(k, src, v)
			o.loaded(k, v)
			k.VMOVUPS(dst, acc)
			o.combine(k, v, acc)
			k.VMOVUPS(acc, dst)
		},
	},
	{
		name: "finish", doc: "makes dst the result of the partial result", finishes: true,
		same: func(o string, c conversion) string {
			switch {
			case c.scale == 1:
				return ""
			case o == "Avg":
				return o
			}
			return "Sum"
		},
		vector: func(k *kernel, c conversion, o op, dst, src operand.Mem) {
			v := k.vector()
			k.VMOVUPS(src, v)
			o.finish(k, v)
			c.store(k, v, dst)
		},
	},
}

// conversion is how a floating-point type becomes its partial result, which is
// scale times as large, a vector of that at a time, and back.
type conversion struct {
	name      string // as in package reduce
	scale     int
	constants func(*kernel) // of store
	load      func(k *kernel, from operand.Mem, v reg.VecVirtual)
	store     func(k *kernel, v reg.VecVirtual, to operand.Mem) // may change v
}

var conversions = []conversion{
	{
		name: "F16", scale: 2,
		constants: single.constants,
		load:      func(k *kernel, from operand.Mem, v reg.VecVirtual) { k.VCVTPH2PS(from, v) },
		store: func(k *kernel, v reg.VecVirtual, to operand.Mem) {
			const nearestEven = 0
			single.canonical(k, v)
			k.VCVTPS2PH(operand.Imm(nearestEven), v, to)
		},
	},
	{
		name: "BF16", scale: 2,
		constants: (*kernel).roundingBF16,
		load: func(k *kernel, from operand.Mem, v reg.VecVirtual) {
			k.VPMOVZXWD(from, v)
			k.VPSLLD(operand.Imm(16), v, v)
		},
		store: func(k *kernel, v reg.VecVirtual, to operand.Mem) {
			v = k.roundBF16(v)
			k.VPSRLD(operand.Imm(16), v, v)
			if k.width == 64 {
				k.VPMOVDW(v, to)
				return
			}
			high := k.XMM()
			k.VEXTRACTI128(operand.Imm(1), v, high)
			k.VPACKUSDW(high, v.AsX(), high)
			k.VMOVUPS(high, to)
		},
	},
	{name: "F32", scale: 1, load: loadWhole},
	{name: "F64", scale: 1, load: loadWhole},
}

func loadWhole(k *kernel, from operand.Mem, v reg.VecVirtual) { k.VMOVUPS(from, v) }

// emitStep writes the kernel of a step. It counts in bytes of contributions,
// goes forward, and loads a vector before it stores the result for it, so that
// dst may start where a source of partial results does.
func emitStep(ctx *build.Context, l level, s step, c conversion, o op, name string) {
	k := &kernel{Context: ctx, level: l}
	stride := l.width / c.scale
	k.Function(name)
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(dst []byte, srcs [][]byte, from, to int, scalar uint64)")
	k.Pragma("noescape")
	k.Doc(fmt.Sprintf("%s %s srcs[0], for %s of %s,", name, s.doc, o.name, c.name),
		fmt.Sprintf("bytes from to to of %s, a multiple of %d.", c.name, stride))
	dst := k.Load(k.Param("dst").Base(), k.GP64())
	src := k.Load(k.Param("srcs").Base(), k.GP64())
	at := k.Load(k.Param("from"), k.GP64())
	end := k.Load(k.Param("to"), k.GP64())
	k.MOVQ(operand.Mem{Base: src}, src)
	if o.scalar != nil {
		x := k.XMM()
		k.scalar = k.vector()
		k.Load(k.Param("scalar"), x)
		o.scalar(k.Context, x, k.scalar)
	}
	if s.finishes {
		c.constants(k)
		o.constants(k)
	}
	next := k.GP64()
	for _, vectors := range []int{unrolled, 1} {
		loop, done := fmt.Sprintf("vectors%d", vectors), fmt.Sprintf("done%d", vectors)
		k.Label(loop)
		k.LEAQ(operand.Mem{Base: at, Disp: vectors * stride}, next)
		k.CMPQ(next, end)
		k.JG(operand.LabelRef(done))
		for i := range vectors {
			contributions := func(base reg.Register) operand.Mem {
				return operand.Mem{Base: base, Index: at, Scale: 1, Disp: i * stride}
			}
			partials := func(base reg.Register) operand.Mem {
				return operand.Mem{Base: base, Index: at, Scale: uint8(c.scale), Disp: i * l.width}
			}
			if s.finishes {
				s.vector(k, c, o, contributions(dst), partials(src))
			} else {
				s.vector(k, c, o, partials(dst), contributions(src))
			}
		}
		k.MOVQ(next, at)
		k.JMP(operand.LabelRef(loop))
		k.Label(done)
	}
	k.VZEROUPPER()
	k.RET()
}
