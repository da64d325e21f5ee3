package reduce

import (
	"encoding/binary"
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
	default: // floats that are summed in F32
		plainShort(dst, srcs, from, to, t, op, math.Float32frombits(uint32(scalar)))
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
			if op >= Band {
				combineBits(acc, x, op)
			} else {
				combine(acc, x, op)
			}
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

// plainShort widens the elements of every source, floats shorter than F32, to
// float32 and narrows the result, once.
func plainShort(dst []byte, srcs [][]byte, from, to int, t Type, op Op, scalar float32) {
	var accs, xs [plainBlock]float32
	for size := t.Size(); from < to; {
		n := min(plainBlock, (to-from)/size)
		end := from + n*size
		acc, x := accs[:n], xs[:n]
		widen(acc, srcs[0][from:end], t)
		premultiply(acc, op, scalar)
		for _, src := range srcs[1:] {
			widen(x, src[from:end], t)
			premultiply(x, op, scalar)
			combine(acc, x, op)
		}
		conclude(acc, op, scalar, canonicalNaN32)
		narrow(dst[from:end], acc, t)
		from = end
	}
}

// plainWiden writes to dst the elements of src from byte from on as float32.
func plainWiden(dst, src []byte, from int, t Type, op Op, factor float32) {
	if from == len(src) {
		return
	}
	var xs [plainBlock]float32
	for size := t.Size(); from < len(src); {
		n := min(plainBlock, (len(src)-from)/size)
		x := xs[:n]
		widen(x, src[from:from+n*size], t)
		premultiply(x, op, factor)
		copy(dst[from/size*4:], bytesOf(x))
		from += n * size
	}
}

// plainNarrow writes to dst, from byte from on, the float32 of src as elements of type t.
func plainNarrow(dst, src []byte, from int, t Type, op Op, divisor float32) {
	if from == len(dst) {
		return
	}
	var xs [plainBlock]float32
	for size := t.Size(); from < len(dst); {
		n := min(plainBlock, (len(dst)-from)/size)
		x := xs[:n]
		copy(bytesOf(x), src[from/size*4:])
		conclude(x, op, divisor, canonicalNaN32)
		narrow(dst[from:from+n*size], x, t)
		from += n * size
	}
}

// widen sets x to the values of the elements in b.
func widen(x []float32, b []byte, t Type) {
	switch t {
	case F16:
		for i := range x {
			x[i] = widenF16(binary.NativeEndian.Uint16(b[2*i:]))
		}
	case BF16:
		for i := range x {
			x[i] = widenBF16(binary.NativeEndian.Uint16(b[2*i:]))
		}
	case E4M3:
		for i := range x {
			x[i] = valuesE4M3[b[i]]
		}
	case E5M2:
		for i := range x {
			x[i] = valuesE5M2[b[i]]
		}
	}
}

// narrow sets the elements in b to the values in x.
func narrow(b []byte, x []float32, t Type) {
	switch t {
	case F16:
		for i := range x {
			binary.NativeEndian.PutUint16(b[2*i:], narrowF16(x[i]))
		}
	case BF16:
		for i := range x {
			binary.NativeEndian.PutUint16(b[2*i:], narrowBF16(x[i]))
		}
	case E4M3:
		for i := range x {
			b[i] = e4m3.narrow(x[i])
		}
	case E5M2:
		for i := range x {
			b[i] = e5m2.narrow(x[i])
		}
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

// combineBits is combine of the bitwise operations.
func combineBits[T integer](acc, x []T, op Op) {
	x = x[:len(acc)]
	switch op {
	case Band:
		for i := range acc {
			acc[i] &= x[i]
		}
	case Bor:
		for i := range acc {
			acc[i] |= x[i]
		}
	case Bxor:
		for i := range acc {
			acc[i] ^= x[i]
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
