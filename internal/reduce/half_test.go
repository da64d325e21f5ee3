package reduce

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// sameFloat says whether two numbers have the same value and sign, or are NaN both.
func sameFloat(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || math.IsNaN(a) && math.IsNaN(b)
}

func TestWidenIsExact(t *testing.T) {
	for h := range 1 << 16 {
		if got, want := float64(widenF16(uint16(h))), decodeHalf(uint16(h), F16); !sameFloat(got, want) {
			require.Failf(t, "f16", "%#04x: got %v, want %v", h, got, want)
		}
		if got, want := float64(widenBF16(uint16(h))), decodeHalf(uint16(h), BF16); !sameFloat(got, want) {
			require.Failf(t, "bf16", "%#04x: got %v, want %v", h, got, want)
		}
	}
}

// Every half, what lies half-way to the next one, and the float32 next to both.
func TestNarrowRoundsToNearestEven(t *testing.T) {
	checked := 0
	check := func(x float32) {
		checked++
		if got, want := narrowF16(x), encodeHalf(float64(x), F16); got != want {
			require.Failf(t, "f16", "%v: got %#04x, want %#04x", x, got, want)
		}
		if got, want := narrowBF16(x), encodeHalf(float64(x), BF16); got != want {
			require.Failf(t, "bf16", "%v: got %#04x, want %#04x", x, got, want)
		}
	}
	for h := range 1 << 16 {
		f16, bf16 := math.Float32bits(widenF16(uint16(h))), uint32(h)<<16
		for _, bits := range []uint32{f16, f16 + 1<<12, bf16, bf16 + 1<<15} {
			for _, b := range []uint32{bits - 1, bits, bits + 1} {
				check(math.Float32frombits(b))
			}
		}
	}
	for h := range uint16(0x400) { // half-way between subnormals of f16
		middle := math.Float32bits(float32((float64(h) + 0.5) * 0x1p-24))
		for _, b := range []uint32{middle - 1, middle, middle + 1} {
			check(math.Float32frombits(b))
			check(math.Float32frombits(b | 1<<31))
		}
	}
	require.Greater(t, checked, 700_000)
}

// Every kernel converts every half, as it is and scaled by factors that make
// it round, overflow and vanish.
func TestKernelsConvertEveryHalf(t *testing.T) {
	src, dst := make([]byte, 2<<16), make([]byte, 2<<16)
	for h := range 1 << 16 {
		put(src, h, 2, uint64(h))
	}
	want := make([]byte, 2<<16)
	for _, typ := range []Type{F16, BF16} {
		for _, factor := range []float64{1, -1, 1.0 / 3, 1 + 0x1p-11, 1 + 0x1p-8, 1 - 0x1p-20, 1.5, 0x1p-10, 0x1p14, 3e38,
			1e-38, 0} {
			for h := range 1 << 16 {
				x := toFloat32(decodeHalf(uint16(h), typ) * toFloat32(factor))
				put(want, h, 2, uint64(encodeHalf(x, typ)))
			}
			for _, l := range Levels() {
				force(t, l)
				Fold(dst, [][]byte{src}, typ, PremulSum, factor)
				require.Equal(t, want, dst, "%v, %v times %v", l, typ, factor)
			}
		}
	}
}
