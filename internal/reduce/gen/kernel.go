package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// level is an instruction set: its vectors are width bytes long.
type level struct {
	name, file string
	width      int
}

var (
	avx2   = level{name: "AVX2", file: "avx2", width: 32}
	avx512 = level{name: "AVX512", file: "avx512", width: 64}
)

// accumulators is how many vector registers hold partial results: enough to
// hide the latency of an addition, and few enough for the 16 registers of AVX2.
const accumulators = 8

// ahead is how many bytes a streaming kernel prefetches ahead of its loads: the
// processor's own prefetcher stops at the end of a page. Measured best of 512,
// 1024 and 2048.
const ahead = 2048

// cacheLine is the size of one, in bytes.
const cacheLine = 64

// sliceHeader is the size of a slice header, the stride in the table of sources.
const sliceHeader = 24

// kernel is what the emitters of elements and operations share.
type kernel struct {
	*build.Context
	level
	streaming  bool           // store around the caches
	scalar     reg.VecVirtual // factor of PremulSum, divisor of Avg
	nan, sign  reg.VecVirtual // in every lane, where the operation needs it
	zero       reg.VecVirtual
	upper      reg.VecVirtual // bf16: upper half of a lane
	unit, half reg.VecVirtual // bf16: of a lane, what the upper half counts in, and half of that
	belowHalf  reg.VecVirtual // bf16: half less one
}

// vector returns a fresh vector register.
func (k *kernel) vector() reg.VecVirtual {
	if k.width == 64 {
		return k.ZMM()
	}
	return k.YMM()
}

// halfVector returns a fresh vector register of half the width.
func (k *kernel) halfVector() reg.VecVirtual {
	if k.width == 64 {
		return k.YMM()
	}
	return k.XMM()
}

// put emits a store of v, which must be aligned if the kernel is streaming.
func (k *kernel) put(v reg.VecVirtual, to operand.Mem) {
	if k.streaming {
		k.VMOVNTPS(v, to)
	} else {
		k.VMOVUPS(v, to)
	}
}

// constant returns a vector register with bits in every lane of 32 or 64 bit.
func (k *kernel) constant(lane int, bits uint64) reg.VecVirtual {
	general, x, v := k.GP64(), k.XMM(), k.vector()
	k.MOVQ(operand.U64(bits), general)
	k.VMOVQ(general, x)
	if lane == 8 {
		k.VPBROADCASTQ(x, v)
	} else {
		k.VPBROADCASTD(x, v)
	}
	return v
}

// emit writes one kernel. For every block that fits the accumulators it loads
// from each source in turn, combines in registers and stores once, so that
// memory traffic is no more than reading every source and writing dst. All loads
// of a block come before its store, therefore dst may be one of the sources.
//
// A streaming kernel stores around the caches, so that the lines of dst are
// not read before they are written. It takes whole blocks only.
func emit(ctx *build.Context, l level, f element, o op, name string, streaming bool) {
	k := &kernel{Context: ctx, level: l, streaming: streaming}
	steps, contract := []int{accumulators / f.parts, 1}, fmt.Sprintf("a multiple of %d bytes.", l.width)
	if streaming {
		steps, contract = steps[:1],
			fmt.Sprintf("a multiple of %d bytes; dst is aligned to %d there.", accumulators*l.width, l.width)
	}
	k.Function(name)
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(dst []byte, srcs [][]byte, from, to int, scalar uint64)")
	k.Pragma("noescape")
	k.Doc(fmt.Sprintf("%s does %s of %s on bytes from to to of every slice,", name, o.name, o.lane), contract)
	dst := k.Load(k.Param("dst").Base(), k.GP64())
	srcs := k.Load(k.Param("srcs").Base(), k.GP64())
	count := k.Load(k.Param("srcs").Len(), k.GP64())
	at := k.Load(k.Param("from"), k.GP64())
	end := k.Load(k.Param("to"), k.GP64())
	if o.scalar != nil {
		x := k.XMM()
		k.scalar = k.vector()
		k.Load(k.Param("scalar"), x)
		o.scalar(k.Context, x, k.scalar)
	}
	f.constants(k)
	o.constants(k)

	next := k.GP64()
	for _, vectors := range steps {
		loop := fmt.Sprintf("blocks%d", vectors)
		done := fmt.Sprintf("done%d", vectors)
		block := vectors * l.width
		k.Label(loop)
		k.LEAQ(operand.Mem{Base: at, Disp: block}, next)
		k.CMPQ(next, end)
		k.JG(operand.LabelRef(done))
		k.block(f, o, dst, srcs, count, at, vectors)
		k.MOVQ(next, at)
		k.JMP(operand.LabelRef(loop))
		k.Label(done)
	}
	if streaming {
		k.SFENCE() // such stores are not ordered before what publishes dst
	}
	k.VZEROUPPER()
	k.RET()
}

// block emits the work on a number of vectors at offset at of every slice.
func (k *kernel) block(f element, o op, dst, srcs, count, at reg.Register, vectors int) {
	source, left, base := k.GP64(), k.GP64(), k.GP64()
	k.MOVQ(srcs, source)
	k.MOVQ(count, left)
	acc := make([][]reg.VecVirtual, vectors)
	load := func(i int) []reg.VecVirtual {
		parts := make([]reg.VecVirtual, f.parts)
		for p := range parts {
			parts[p] = k.vector()
		}
		from := operand.Mem{Base: base, Index: at, Scale: 1, Disp: i * k.width}
		if k.streaming && from.Disp%cacheLine == 0 {
			k.PREFETCHT0(from.Offset(ahead))
		}
		f.load(k, from, parts)
		for _, v := range parts {
			o.loaded(k, v)
		}
		return parts
	}
	k.MOVQ(operand.Mem{Base: source}, base)
	for i := range acc {
		acc[i] = load(i)
	}
	loop, store := fmt.Sprintf("sources%d", vectors), fmt.Sprintf("store%d", vectors)
	k.DECQ(left)
	k.JZ(operand.LabelRef(store))
	k.Label(loop)
	k.ADDQ(operand.Imm(sliceHeader), source)
	k.MOVQ(operand.Mem{Base: source}, base)
	for i := range acc {
		for p, v := range load(i) {
			o.combine(k, v, acc[i][p])
		}
	}
	k.DECQ(left)
	k.JNZ(operand.LabelRef(loop))
	k.Label(store)
	for i := range acc {
		for _, v := range acc[i] {
			o.finish(k, v)
		}
		f.store(k, acc[i], operand.Mem{Base: dst, Index: at, Scale: 1, Disp: i * k.width})
	}
}
