package reduce

import "math"

// float8 is one of the 8-bit formats of the OCP's OFP8 specification: a sign,
// an exponent and a fraction, with subnormals. They are CUDA's __nv_fp8_e4m3
// and __nv_fp8_e5m2.
type float8 struct {
	fraction int   // bits of the fraction; the exponent has 7 - fraction
	largest  uint8 // the largest number; infinity and NaN are above
	infinity uint8 // 0 if the format has none
}

var (
	e4m3 = float8{fraction: 3, largest: 0x7e}                 // up to 448
	e5m2 = float8{fraction: 2, largest: 0x7b, infinity: 0x7c} // up to 57344
)

// nanFloat8 is the NaN of both formats that is stored: CUDA's and torch's
// conversions give it too.
const nanFloat8 = 0x7f

// The values of all numbers, by their bits.
var (
	valuesE4M3 = e4m3.values()
	valuesE5M2 = e5m2.values()
)

func (f float8) bias() int { return 1<<(6-f.fraction) - 1 }

func (f float8) values() (v [256]float32) {
	for b := range 128 {
		// The fields lie as in a float32, but its exponent has another bias; a
		// subnormal is one there, too, until the product makes it normal.
		x := math.Float32frombits(uint32(b)<<(23-f.fraction)) * float32(math.Ldexp(1, 127-f.bias()))
		switch {
		case f.infinity != 0 && b == int(f.infinity):
			x = float32(math.Inf(1))
		case b > int(f.largest):
			x = canonicalNaN32
		}
		v[b], v[b|0x80] = x, -x
	}
	return v
}

// narrow rounds to the nearest number, ties to even. A number that is too large,
// infinity included, becomes the largest one (Fold says why) and a NaN nanFloat8.
func (f float8) narrow(x float32) uint8 {
	if x != x {
		return nanFloat8
	}
	rebias := uint32(127-f.bias()) << 23
	shift := 23 - f.fraction
	bits := math.Float32bits(x)
	sign, abs := uint8(bits>>24)&0x80, bits&^(1<<31)
	abs = min(abs, rebias+uint32(f.largest)<<shift)
	if abs < rebias+1<<23 {
		// Subnormal. Near unit a float32 counts as the subnormals do, so that
		// the addition itself rounds.
		unit := math.Float32frombits(rebias + uint32(1+shift)<<23)
		return sign | uint8(math.Float32bits(math.Float32frombits(abs)+unit)-math.Float32bits(unit))
	}
	abs -= rebias
	return sign | uint8((abs+1<<(shift-1)-1+abs>>shift&1)>>shift)
}
