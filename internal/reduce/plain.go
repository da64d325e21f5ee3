package reduce

import (
	"math"
	"unsafe"
)

// plainBlock is how many elements plain works on at a time, on the stack.
const plainBlock = 128

type integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

type floating interface{ float32 | float64 }

// plain is the kernel of last resort, and the one that the others are tested
// against: it takes every type, operation, length and alignment.
func plain(dst []byte, srcs [][]byte, from, to int, t Type, op Op, scalar uint64) {
	if from == to {
		return // at once: the blocks on the stack are cleared on entry
	}
	switch t {
	case I8:
		plainIntegers[int8](dst, srcs, from, to, op, scalar)
	case U8:
		plainIntegers[uint8](dst, srcs, from, to, op, scalar)
	case I16:
		plainIntegers[int16](dst, srcs, from, to, op, scalar)
	case U16:
		plainIntegers[uint16](dst, srcs, from, to, op, scalar)
	case I32:
		plainIntegers[int32](dst, srcs, from, to, op, scalar)
	case U32:
		plainIntegers[uint32](dst, srcs, from, to, op, scalar)
	case I64:
		plainIntegers[int64](dst, srcs, from, to, op, scalar)
	case U64:
		plainIntegers[uint64](dst, srcs, from, to, op, scalar)
	case F32:
		plainFloats(dst, srcs, from, to, op, math.Float32frombits(uint32(scalar)), canonicalNaN32)
	case F64:
		plainFloats(dst, srcs, from, to, op, math.Float64frombits(scalar), canonicalNaN64)
	case F16, BF16:
		plainHalves(dst, srcs, from, to, t, op, math.Float32frombits(uint32(scalar)))
	}
}

// A NaN that is stored is always one of these.
var (
	canonicalNaN32 = math.Float32frombits(0x7fc00000)
	canonicalNaN64 = math.Float64frombits(0x7ff8000000000000)
)

// bytesOf returns the bytes of block. Elements are copied to and from blocks
// as bytes, so that their alignment in dst and the sources does not matter.
func bytesOf[T any](block []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(block))), len(block)*int(unsafe.Sizeof(block[0])))
}

func plainIntegers[T integer](dst []byte, srcs [][]byte, from, to int, op Op, scalar uint64) {
	var accs, xs [plainBlock]T
	for size := int(unsafe.Sizeof(accs[0])); from < to; {
		n := min(plainBlock, (to-from)/size)
		end := from + n*size
		acc, x := accs[:n], xs[:n]
		copy(bytesOf(acc), srcs[0][from:end])
		premultiply(acc, op, T(scalar))
		for _, src := range srcs[1:] {
			copy(bytesOf(x), src[from:end])
			premultiply(x, op, T(scalar))
			combine(acc, x, op)
		}
		if op == Avg {
			divide(acc, scalar)
		}
		copy(dst[from:end], bytesOf(acc))
		from = end
	}
}

func plainFloats[T floating](dst []byte, srcs [][]byte, from, to int, op Op, scalar, nan T) {
	var accs, xs [plainBlock]T
	for size := int(unsafe.Sizeof(accs[0])); from < to; {
		n := min(plainBlock, (to-from)/size)
		end := from + n*size
		acc, x := accs[:n], xs[:n]
		copy(bytesOf(acc), srcs[0][from:end])
		premultiply(acc, op, scalar)
		for _, src := range srcs[1:] {
			copy(bytesOf(x), src[from:end])
			premultiply(x, op, scalar)
			combine(acc, x, op)
		}
		conclude(acc, op, scalar, nan)
		copy(dst[from:end], bytesOf(acc))
		from = end
	}
}

// plainHalves widens the elements of every source to float32 and narrows the
// result, once.
func plainHalves(dst []byte, srcs [][]byte, from, to int, t Type, op Op, scalar float32) {
	var accs, xs [plainBlock]float32
	var hs [plainBlock]uint16
	for from < to {
		n := min(plainBlock, (to-from)/2)
		end := from + n*2
		acc, x, h := accs[:n], xs[:n], hs[:n]
		copy(bytesOf(h), srcs[0][from:end])
		widen(acc, h, t)
		premultiply(acc, op, scalar)
		for _, src := range srcs[1:] {
			copy(bytesOf(h), src[from:end])
			widen(x, h, t)
			premultiply(x, op, scalar)
			combine(acc, x, op)
		}
		conclude(acc, op, scalar, canonicalNaN32)
		narrow(h, acc, t)
		copy(dst[from:end], bytesOf(h))
		from = end
	}
}

// plainWiden writes to dst the halves of src from byte from on as float32.
func plainWiden(dst, src []byte, from int, t Type, op Op, factor float32) {
	if from == len(src) {
		return
	}
	var xs [plainBlock]float32
	var hs [plainBlock]uint16
	for from < len(src) {
		n := min(plainBlock, (len(src)-from)/2)
		x, h := xs[:n], hs[:n]
		copy(bytesOf(h), src[from:])
		widen(x, h, t)
		premultiply(x, op, factor)
		copy(dst[2*from:], bytesOf(x))
		from += 2 * n
	}
}

// plainNarrow writes to dst, from byte from on, the float32 of src as halves.
func plainNarrow(dst, src []byte, from int, t Type, op Op, divisor float32) {
	if from == len(dst) {
		return
	}
	var xs [plainBlock]float32
	var hs [plainBlock]uint16
	for from < len(dst) {
		n := min(plainBlock, (len(dst)-from)/2)
		x, h := xs[:n], hs[:n]
		copy(bytesOf(x), src[2*from:])
		conclude(x, op, divisor, canonicalNaN32)
		narrow(h, x, t)
		copy(dst[from:], bytesOf(h))
		from += 2 * n
	}
}

func widen(x []float32, h []uint16, t Type) {
	if t == F16 {
		for i := range x {
			x[i] = widenF16(h[i])
		}
		return
	}
	for i := range x {
		x[i] = widenBF16(h[i])
	}
}

func narrow(h []uint16, x []float32, t Type) {
	if t == F16 {
		for i := range h {
			h[i] = narrowF16(x[i])
		}
		return
	}
	for i := range h {
		h[i] = narrowBF16(x[i])
	}
}

// premultiply multiplies by the factor before the sum. It is a step of its own
// so that no compiler fuses it with the addition, which would round once less.
func premultiply[T integer | floating](x []T, op Op, factor T) {
	if op != PremulSum {
		return
	}
	for i := range x {
		x[i] *= factor
	}
}

// combine adds x to acc, or what else op does. The builtin max and min let NaN
// win and order -0 below +0.
func combine[T integer | floating](acc, x []T, op Op) {
	x = x[:len(acc)]
	switch op {
	case Sum, Avg, PremulSum:
		for i := range acc {
			acc[i] += x[i]
		}
	case Prod:
		for i := range acc {
			acc[i] *= x[i]
		}
	case Max:
		for i := range acc {
			acc[i] = max(acc[i], x[i])
		}
	case Min:
		for i := range acc {
			acc[i] = min(acc[i], x[i])
		}
	}
}

// divide divides by n, which may be more than a T can hold, and drops the
// fraction.
func divide[T integer](acc []T, n uint64) {
	var zero T
	if zero-1 > zero { // unsigned
		for i := range acc {
			acc[i] = T(uint64(acc[i]) / n)
		}
		return
	}
	for i := range acc {
		acc[i] = T(int64(acc[i]) / int64(n))
	}
}

// conclude divides for Avg and replaces every NaN by the canonical one.
func conclude[T floating](acc []T, op Op, divisor, nan T) {
	if op == Avg {
		for i := range acc {
			acc[i] /= divisor
		}
	}
	for i := range acc {
		if acc[i] != acc[i] {
			acc[i] = nan
		}
	}
}
