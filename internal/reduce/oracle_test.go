package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
)

// The oracle computes one element at a time from the definition, by other
// means than the package: integers in math/big, halves and 8-bit floats by
// search among all their values, F32 in float64 with one rounding a step (which is
// exact, since 53 >= 2*24 + 2).

// oracle returns the bits of op over elements, given as bits in source order.
func oracle(elements []uint64, t Type, op Op, factor float64) uint64 {
	switch t {
	case F64:
		return canonicalBits(oracleFloat(elements, op, factor, math.Float64frombits, func(x float64) float64 { return x }), t)
	case F32:
		decode := func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }
		return canonicalBits(oracleFloat(elements, op, factor, decode, toFloat32), t)
	case E4M3, E5M2:
		decode := func(b uint64) float64 { return float8Values[t][b] }
		return uint64(encodeFloat8(oracleFloat(elements, op, factor, decode, toFloat32), t))
	case F16, BF16:
		decode := func(b uint64) float64 { return decodeHalf(uint16(b), t) }
		return uint64(encodeHalf(oracleFloat(elements, op, factor, decode, toFloat32), t))
	}
	return oracleInteger(elements, t, op, factor)
}

func toFloat32(x float64) float64 { return float64(float32(x)) }

func canonicalBits(x float64, t Type) uint64 {
	switch {
	case t == F64 && math.IsNaN(x):
		return 0x7ff8000000000000
	case t == F64:
		return math.Float64bits(x)
	case math.IsNaN(x):
		return 0x7fc00000
	}
	return uint64(math.Float32bits(float32(x)))
}

func oracleFloat(
	elements []uint64, op Op, factor float64, decode func(uint64) float64, round func(float64) float64,
) float64 {
	factor = round(factor)
	var acc float64
	for i, b := range elements {
		x := decode(b)
		if op == PremulSum {
			x = round(x * factor)
		}
		switch {
		case i == 0:
			acc = x
		case op == Prod:
			acc = round(acc * x)
		case op == Max: // math.Max and Min prefer an infinity to NaN; see below
			acc = math.Max(acc, x)
		case op == Min:
			acc = math.Min(acc, x)
		default:
			acc = round(acc + x)
		}
	}
	switch {
	case op == Avg:
		acc = round(acc / float64(len(elements)))
	case hasNaN(elements, decode): // NaN in, NaN out, for any operation
		acc = math.NaN()
	}
	return acc
}

func hasNaN(elements []uint64, decode func(uint64) float64) bool {
	for _, b := range elements {
		if math.IsNaN(decode(b)) {
			return true
		}
	}
	return false
}

// decodeHalf returns the value of a half from the definition of its format.
func decodeHalf(h uint16, t Type) float64 {
	fractionBits, bias := 10, 15
	if t == BF16 {
		fractionBits, bias = 7, 127
	}
	sign := 1.0
	if h>>15 == 1 {
		sign = -1
	}
	fraction := float64(h & (1<<fractionBits - 1))
	exponent := int(h&0x7fff) >> fractionBits
	scale := math.Ldexp(1, -fractionBits)
	switch {
	case exponent == 2*bias+1 && fraction != 0:
		return math.NaN()
	case exponent == 2*bias+1:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(math.Ldexp(fraction*scale, 1-bias), sign)
	}
	return sign * math.Ldexp(1+fraction*scale, exponent-bias)
}

// encodeHalf finds the nearest half by bisection over the positive ones, which
// are in the order of their bits. Infinity stands for the number that would
// follow the largest: half-way to it and beyond, x is infinite.
func encodeHalf(x float64, t Type) uint16 {
	infinity, nan, beyond := uint16(0x7c00), uint16(0x7e00), 0x1p16
	if t == BF16 {
		infinity, nan, beyond = 0x7f80, 0x7fc0, 0x1p128
	}
	if math.IsNaN(x) {
		return nan
	}
	var sign uint16
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	if x >= beyond {
		return sign | infinity
	}
	value := func(h uint16) float64 {
		if h == infinity {
			return beyond
		}
		return decodeHalf(h, t)
	}
	low, high := uint16(0), infinity // value(low) <= x < value(high)
	for high-low > 1 {
		middle := low + (high-low)/2
		if value(middle) <= x {
			low = middle
		} else {
			high = middle
		}
	}
	down, up := x-value(low), value(high)-x // exact: their significands are close
	if up < down || up == down && low%2 == 1 {
		low = high
	}
	return sign | low
}

func oracleInteger(elements []uint64, t Type, op Op, factor float64) uint64 {
	signed := t == I8 || t == I16 || t == I32 || t == I64
	bits := uint(8 * t.Size())
	// wrap reduces z to the range of the type.
	wrap := func(z *big.Int) *big.Int {
		modulus := new(big.Int).Lsh(big.NewInt(1), bits)
		z = new(big.Int).Mod(z, modulus)
		if signed && z.Bit(int(bits-1)) == 1 {
			z.Sub(z, modulus)
		}
		return z
	}
	acc := new(big.Int)
	for i, b := range elements {
		x := wrap(new(big.Int).SetUint64(b))
		if op == PremulSum {
			x = wrap(new(big.Int).Mul(x, clamped(factor, bits, signed)))
		}
		switch {
		case i == 0:
			acc = x
		case op == Prod:
			acc = wrap(new(big.Int).Mul(acc, x))
		case op == Max:
			if x.Cmp(acc) > 0 {
				acc = x
			}
		case op == Min:
			if x.Cmp(acc) < 0 {
				acc = x
			}
		case op == Band:
			acc = new(big.Int).And(acc, x)
		case op == Bor:
			acc = new(big.Int).Or(acc, x)
		case op == Bxor:
			acc = new(big.Int).Xor(acc, x)
		default:
			acc = wrap(new(big.Int).Add(acc, x))
		}
	}
	if op == Avg {
		acc = new(big.Int).Quo(acc, big.NewInt(int64(len(elements))))
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), bits)
	return new(big.Int).Mod(acc, modulus).Uint64()
}

// clamped truncates factor and clamps it to the range of an integer type.
func clamped(factor float64, bits uint, signed bool) *big.Int {
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), bits)
	if signed {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	high.Sub(high, big.NewInt(1))
	switch {
	case math.IsNaN(factor):
		return new(big.Int)
	case math.IsInf(factor, 1):
		return high
	case math.IsInf(factor, -1):
		return low
	}
	z, _ := big.NewFloat(factor).Int(nil)
	if z.Cmp(low) < 0 {
		return low
	}
	if z.Cmp(high) > 0 {
		return high
	}
	return z
}

// get and put access element i of a slice of elements of size bytes.
func get(s []byte, i, size int) uint64 {
	var word [8]byte
	copy(word[:], s[i*size:(i+1)*size])
	return binary.LittleEndian.Uint64(word[:])
}

func put(s []byte, i, size int, bits uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(s[i*size:(i+1)*size], word[:size])
}

// special values of every type: zeros, infinities, quiet and signalling NaN of
// either sign, subnormals, the largest, halves of a unit.
var special = map[int][]uint64{
	1: {0, 1, 0x7f, 0x80, 0xff, 0x03, 0x04, 0x07, 0x08, 0x38, 0x3c, 0x7b, 0xfb, 0x7c, 0xfc, 0x7d, 0x7e, 0xfe},
	2: {
		0, 0x8000, 1, 0x8001, 0x7fff, 0xffff, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00,
		0xfe01,
		0x007f, 0x0080, 0x3f80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffc1,
	},
	4: {
		0, 1 << 31, 1, 1<<31 | 1, 0x7fffff, 0x800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff,
		0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffc12345, 0x7fffffff, 0xffffffff,
	},
	8: {
		0, 1 << 63, 1, 1<<63 | 1, 1<<52 - 1, 1 << 52, 0x3ff0000000000000, 0xbff0000000000000, 0x7fefffffffffffff,
		0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001, 0x7ff8000000000000, 0xfff8000000000123, 1<<63 - 1,
		1<<64 - 1,
	},
}

// tame returns a number near one, so that sums stay finite and round.
func tame(r *rand.Rand, t Type) uint64 {
	x := r.NormFloat64()
	switch t {
	case F64:
		return math.Float64bits(x)
	case F32:
		return uint64(math.Float32bits(float32(x)))
	case F16, BF16:
		return uint64(encodeHalf(toFloat32(x), t))
	case E4M3, E5M2:
		return uint64(encodeFloat8(x, t))
	}
	return uint64(int64(10 * x))
}

// fill puts numbers into the element of every source. All sources have the
// same kind of number at one index: tame, any bits, or special ones.
func fill(r *rand.Rand, srcs [][]byte, t Type) {
	size := t.Size()
	for i := range len(srcs[0]) / size {
		kind := r.IntN(3)
		for _, s := range srcs {
			bits := r.Uint64()
			switch kind {
			case 0:
				bits = tame(r, t)
			case 1:
				bits = special[size][r.IntN(len(special[size]))]
			}
			put(s, i, size, bits)
		}
	}
}
