// Package reduce combines the contributions of all ranks to a Reduce-Scatter:
// sums and their relatives over NCCL's element types, by SIMD kernels for
// AVX2 and AVX-512 and plain Go elsewhere. Kernels are written by gen and
// chosen by cpuid; the same inputs give the same bits whichever is used.
package reduce

import (
	"fmt"
	"math"
	"unsafe"
)

// segment is how many bytes of dst one call of a kernel covers. The runtime
// cannot stop a goroutine inside of assembly, and a garbage collection waits
// until it can: some 0.1 ms with eight sources in memory.
const segment = 128 << 10

// large is the size in bytes from which on a destination is written around
// the caches: a line that is not cached is otherwise read before it is
// written. Measured (Xeon, 2 MiB of L2, pieces folded from cached sources):
// from 16 MiB on this is 1.5 to 3 times as fast, and no slower even if the
// destination is read right afterwards; below, reading it back costs more.
const large = 16 << 20

// Fold sets every element of dst to op over the elements of srcs at the same index, taken in the
// order of srcs (InOrder makes it). The numbers are in the machine's byte order.
//
// All slices have the same length in bytes, a multiple of t.Size(), which may be 0; they need no
// alignment. There is at least one source. dst may be one of the sources, exactly; it must not
// overlap them otherwise. A violation of this, and a type or operation that is not valid, is a
// mistake of the caller: Fold panics and says which.
//
//   - Integers wrap around. F16, BF16, E4M3 and E5M2 are accumulated in F32 over
//     all sources and rounded once, to nearest even.
//   - A number that is too large becomes an infinity, but in E4M3 and E5M2 the
//     largest number of the same sign, infinities themselves included, for any
//     operation. So it is in NCCL (2.30.7, src/device/reduce_kernel.h: every
//     result of two goes through the constructors of __nv_fp8_e4m3 and
//     __nv_fp8_e5m2, which CUDA documents as __NV_SATFINITE), and a tensor's
//     result does not depend on the route that it takes.
//   - Avg is Sum, divided by len(srcs): a true division (not a multiplication
//     by the reciprocal), in F32 for the floats that are shorter; for integers
//     after the sum has wrapped, truncated towards zero.
//   - PremulSum (NCCL's PreMulSum) multiplies every element by factor first.
//     factor is rounded to F32 for F32 and shorter floats; for integers it is
//     truncated towards zero and clamped to the range of the type, NaN is 0.
//     The other operations ignore factor.
//   - Max and Min order -0 below +0, and NaN wins in both (IEEE 754-2019
//     maximum and minimum).
//   - Band, Bor and Bxor combine the bits of integers. They take no floats.
//   - A NaN in the result is the canonical quiet one (E4M3 and E5M2 0x7f, F16
//     0x7e00, BF16 0x7fc0, F32 0x7fc00000, F64 0x7ff8000000000000), even with
//     one source.
//
// Fold allocates nothing. Any number of goroutines may call it at once.
func Fold(dst []byte, srcs [][]byte, t Type, op Op, factor float64) {
	FoldPart(dst, srcs, t, op, factor, len(dst))
}

// FoldPart is Fold for a caller that folds a destination of whole bytes piece
// by piece. The size of the whole decides how a piece is stored; it does not
// change the result.
func FoldPart(dst []byte, srcs [][]byte, t Type, op Op, factor float64, whole int) {
	check(dst, srcs, t, op)
	fold(dst, srcs, t, op, operand(t, op, len(srcs), factor), whole)
}

// fold is FoldPart for arguments that were checked.
func fold(dst []byte, srcs [][]byte, t Type, op Op, scalar uint64, whole int) {
	e, position, at := active.Load(), t.position(), 0
	if k := e.streams[position][op]; k != nil && whole >= large && !inPlace(dst, srcs) {
		if head := misaligned(dst, e.vector); head < len(dst) && head%t.Size() == 0 {
			plain(dst, srcs, 0, head, t, op, scalar)
			at = run(k, dst, srcs, head, len(dst), 8*e.vector, scalar)
		}
	}
	if k := e.kernels[position][op]; k != nil {
		at = run(k, dst, srcs, at, len(dst), e.vector, scalar)
	}
	plain(dst, srcs, at, len(dst), t, op, scalar)
}

// inPlace says whether dst is one of the sources. Its lines are then read
// anyway, and there is nothing to gain from storing around the caches.
func inPlace(dst []byte, srcs [][]byte) bool {
	for _, src := range srcs {
		if unsafe.SliceData(src) == unsafe.SliceData(dst) {
			return true
		}
	}
	return false
}

// misaligned returns how many bytes dst starts before a multiple of vector.
func misaligned(dst []byte, vector int) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & uintptr(vector-1))
}

// run calls k for as many units of bytes as there are between from and to, and
// returns where it stopped.
func run(k kernel, dst []byte, srcs [][]byte, from, to, unit int, scalar uint64) int {
	end := to - (to-from)%unit
	for ; from < end; from += segment {
		call(k, dst, srcs, from, min(from+segment, end), scalar)
	}
	return end
}

// call calls k. It is not inlined because the runtime can stop a goroutine at
// the entry of a Go function, but not of a kernel.
//
//go:noinline
func call(k kernel, dst []byte, srcs [][]byte, from, to int, scalar uint64) {
	k(*unseen(&dst), *unseen(&srcs), from, to, scalar)
}

// unseen returns p, hiding that it does: the compiler assumes that a function
// which is called through a pointer keeps its arguments, and would have them
// all on the heap. Kernels keep nothing.
//
//go:nocheckptr
func unseen[T any](p *T) *T {
	return (*T)(unsafe.Add(nil, uintptr(unsafe.Pointer(p))))
}

// check panics if the arguments break the contract of Fold: the kernels trust
// the lengths.
func check(dst []byte, srcs [][]byte, t Type, op Op) {
	switch {
	case !t.Valid():
		panic(fmt.Sprintf("reduce: %v is no element type", t))
	case !op.Valid():
		panic(fmt.Sprintf("reduce: %v is no operation", op))
	case !op.Takes(t):
		panic(fmt.Sprintf("reduce: %v of %v: want an integer type", op, t))
	case len(srcs) == 0:
		panic("reduce: no source; want at least one")
	case len(dst)%t.Size() != 0:
		panic(fmt.Sprintf("reduce: %d bytes are no multiple of the %d of %v", len(dst), t.Size(), t))
	}
	for i, src := range srcs {
		if len(src) != len(dst) {
			panic(fmt.Sprintf("reduce: source %d has %d bytes, the destination %d; want the same", i, len(src), len(dst)))
		}
	}
}

// operand returns the scalar of a kernel as bits of the accumulate type: the factor of PremulSum
// or the divisor of Avg. For integers of any size the divisor is an unsigned 64-bit number.
func operand(t Type, op Op, sources int, factor float64) uint64 {
	value := factor
	switch op {
	case Avg:
		value = float64(sources)
	case PremulSum:
	default:
		return 0
	}
	switch t.Accumulator() {
	case F64:
		return math.Float64bits(value)
	case F32:
		return uint64(math.Float32bits(float32(value)))
	}
	if op == Avg {
		return uint64(sources)
	}
	return truncate(value, t)
}

// truncate returns factor without its fraction, clamped to the range of the
// integer type t; a negative number as two's complement.
func truncate(factor float64, t Type) uint64 {
	bits := 8 * t.Size()
	switch {
	case math.IsNaN(factor):
		return 0
	case t == U8 || t == U16 || t == U32 || t == U64:
		limit := math.Ldexp(1, bits)
		if factor >= limit {
			return math.MaxUint64 >> (64 - bits)
		}
		return uint64(max(factor, 0))
	}
	limit := math.Ldexp(1, bits-1)
	if factor >= limit {
		return 1<<(bits-1) - 1
	}
	return uint64(int64(max(factor, -limit)))
}
