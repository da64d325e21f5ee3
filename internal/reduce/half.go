package reduce

import "math"

// widenF16 returns the value of a binary16 number, which every float32 can hold.
func widenF16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent, fraction := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero and subnormals count units of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// narrowF16 rounds to the nearest binary16 number, ties to even. A number that
// is too large becomes infinity and a NaN the canonical one.
func narrowF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16)&0x8000, bits&^(1<<31)
	switch {
	case f != f:
		return 0x7e00
	case abs >= 0x477ff000: // 65520, half-way between the largest number and the next
		return sign | 0x7c00
	case abs < 0x38800000: // 2^-14: the result is subnormal
		// Near 1/2 a float32 counts in units of 2^-24 as the subnormals do, so
		// that the addition itself rounds.
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))
	}
	abs -= (127 - 15) << 23
	return sign | uint16((abs+0xfff+(abs>>13)&1)>>13)
}

// widenBF16 returns the value of a bfloat16 number: it is half a float32.
func widenBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// narrowBF16 rounds to the nearest bfloat16 number, ties to even. A number that
// is too large becomes infinity and a NaN the canonical one.
func narrowBF16(f float32) uint16 {
	if f != f {
		return 0x7fc0
	}
	bits := math.Float32bits(f)
	return uint16((bits + 0x7fff + (bits>>16)&1) >> 16)
}
