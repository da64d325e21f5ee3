package reduce

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// decodeFloat8 returns the value of an 8-bit float from the definition of its
// format: of e4m3 only 0x7f and 0xff are not numbers, e5m2 is as IEEE 754 has it.
func decodeFloat8(b uint8, t Type) float64 {
	fractionBits, bias := 3, 7
	if t == E5M2 {
		fractionBits, bias = 2, 15
	}
	sign := 1.0
	if b>>7 == 1 {
		sign = -1
	}
	magnitude := b & 0x7f
	fraction := float64(magnitude&(1<<fractionBits-1)) / float64(int(1)<<fractionBits)
	exponent := int(magnitude >> fractionBits)
	switch {
	case t == E4M3 && magnitude == 0x7f, t == E5M2 && magnitude > 0x7c:
		return math.NaN()
	case t == E5M2 && magnitude == 0x7c:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(math.Ldexp(fraction, 1-bias), sign)
	}
	return sign * math.Ldexp(1+fraction, exponent-bias)
}

// float8Values are the values of all numbers.
var float8Values = map[Type]*[256]float64{E4M3: decodeAll(E4M3), E5M2: decodeAll(E5M2)}

func decodeAll(t Type) *[256]float64 {
	var v [256]float64
	for b := range v {
		v[b] = decodeFloat8(uint8(b), t)
	}
	return &v
}

// encodeFloat8 looks at every number and takes the nearest; of two equally near
// it takes the one with 0 as its last bit. A number above the largest becomes the
// largest.
func encodeFloat8(x float64, t Type) uint8 {
	if math.IsNaN(x) {
		return 0x7f
	}
	largest := uint8(0x7e)
	if t == E5M2 {
		largest = 0x7b
	}
	numbers := float8Values[t][:largest+1]
	magnitude := min(math.Abs(x), numbers[largest])
	best, distance := 0, math.Inf(1)
	for b, value := range numbers {
		d := math.Abs(magnitude - value) // exact for the two next to it
		if d < distance || d == distance && b%2 == 0 {
			best, distance = b, d
		}
	}
	if math.Signbit(x) {
		best |= 0x80
	}
	return uint8(best)
}

func TestFloat8ByHand(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		bits  uint8
		value float64
	}{
		{E4M3, 0x00, 0}, {E4M3, 0x01, 0x1p-9}, {E4M3, 0x07, 7 * 0x1p-9}, {E4M3, 0x08, 0x1p-6}, {E4M3, 0x38, 1},
		{E4M3, 0xb9, -1.125},
		{E4M3, 0x78, 256}, {E4M3, 0x7e, 448}, {E4M3, 0xfe, -448}, {E4M3, 0x7f, math.NaN()},
		{E5M2, 0x00, 0}, {E5M2, 0x01, 0x1p-16}, {E5M2, 0x03, 3 * 0x1p-16}, {E5M2, 0x04, 0x1p-14}, {E5M2, 0x3c, 1},
		{E5M2, 0xbd, -1.25},
		{E5M2, 0x7b, 57344}, {E5M2, 0xfb, -57344}, {E5M2, 0x7f, math.NaN()},
	} {
		require.True(t, sameFloat(c.value, decodeFloat8(c.bits, c.typ)), "%v %#x", c.typ, c.bits)
		require.Equal(t, c.bits, encodeFloat8(c.value, c.typ), "%v %v", c.typ, c.value)
	}
	require.True(t, math.IsInf(decodeFloat8(0xfc, E5M2), -1))
}

func TestWidenFloat8IsExact(t *testing.T) {
	for b := range 256 {
		for typ, values := range map[Type]*[256]float32{E4M3: &valuesE4M3, E5M2: &valuesE5M2} {
			got, want := float64(values[b]), decodeFloat8(uint8(b), typ)
			require.True(t, sameFloat(got, want), "%v %#02x: got %v, want %v", typ, b, got, want)
		}
	}
}

// Every number, the value half-way to the next one, and the float32 next to both;
// then all float32 with a lower half of 0 or 1: every binade, and beyond the
// largest number.
func TestNarrowFloat8RoundsToNearestEven(t *testing.T) {
	checked := 0
	for typ, format := range map[Type]float8{E4M3: e4m3, E5M2: e5m2} {
		check := func(x float32) {
			checked++
			if got, want := format.narrow(x), encodeFloat8(float64(x), typ); got != want {
				require.Failf(t, "wrong rounding", "%v of %v: got %#02x, want %#02x", typ, x, got, want)
			}
		}
		for b := range 256 {
			x := decodeFloat8(uint8(b), typ)
			middle := (x + decodeFloat8(uint8(b+1), typ)) / 2
			for _, bits := range []uint32{math.Float32bits(float32(x)), math.Float32bits(float32(middle))} {
				for _, near := range []uint32{bits - 1, bits, bits + 1} {
					check(math.Float32frombits(near))
				}
			}
		}
		for upper := range uint32(1 << 16) {
			check(math.Float32frombits(upper << 16))
			check(math.Float32frombits(upper<<16 | 1))
		}
	}
	require.Greater(t, checked, 260_000)
}

// Every pair of bytes, every operation, by Fold and in steps, at every level.
func TestEveryPairOfFloat8(t *testing.T) {
	const pairs = 1 << 16
	a, b := make([]byte, pairs), make([]byte, pairs)
	for i := range pairs {
		a[i], b[i] = byte(i>>8), byte(i)
	}
	srcs := [][]byte{a, b}
	dst, acc, want := make([]byte, pairs), make([]byte, 4*pairs), make([]byte, pairs)
	for _, typ := range []Type{E4M3, E5M2} {
		for _, op := range opsOf(typ) {
			factors := []float64{1}
			if op == PremulSum {
				factors = []float64{1, -1, 1.0 / 3, 0, 0x1p-12, 3e38, 1e-38, math.Inf(1), math.NaN()}
			}
			for _, factor := range factors {
				for i := range pairs {
					want[i] = byte(oracle([]uint64{uint64(a[i]), uint64(b[i])}, typ, op, factor))
				}
				for _, l := range Levels() {
					force(t, l)
					Fold(dst, srcs, typ, op, factor)
					require.Equal(t, want, dst, "%v %v, factor %v, level %v", op, typ, factor, l)
					Begin(acc, a, typ, op, factor)
					CombineNext(acc, b, typ, op, factor)
					Finish(dst, acc, typ, op, 2)
					require.Equal(t, want, dst, "steps, %v %v, factor %v, level %v", op, typ, factor, l)
				}
			}
		}
	}
}
