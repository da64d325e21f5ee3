package reduce

import (
	"testing"

	"github.com/klauspost/cpuid/v2"
	"github.com/stretchr/testify/require"
)

func TestTypes(t *testing.T) {
	// NCCL's ncclDataType_t.
	numbers := map[string]uint8{
		"i8": 0, "u8": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "e4m3": 10,
		"e5m2": 11, "i16": 100, "u16": 101,
	}
	sizes := map[string]int{
		"i8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4,
		"i64": 8, "u64": 8, "f64": 8,
	}
	valid := 0
	for n := range 256 {
		if typ := Type(n); typ.Valid() {
			valid++
			require.Equal(t, uint8(n), numbers[typ.String()], "%v: is it in the tables of this test?", typ)
			require.Equal(t, sizes[typ.String()], typ.Size())
			parsed, err := ParseType(typ.String())
			require.NoError(t, err)
			require.Equal(t, typ, parsed)
		} else {
			require.Zero(t, typ.Size())
		}
	}
	require.Equal(t, len(numbers), valid)
	require.Equal(t, "type(99)", Type(99).String())
	_, err := ParseType("float")
	require.EqualError(t, err,
		`reduce: unknown type "float"; want one of i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, e4m3, e5m2, i16, u16`)
}

func TestOps(t *testing.T) {
	for number, name := range []string{"sum", "prod", "max", "min", "avg", "premulsum", "band", "bor", "bxor"} {
		op, err := ParseOp(name)
		require.NoError(t, err)
		require.Equal(t, Op(number), op)
		require.True(t, op.Valid())
		require.Equal(t, name, op.String())
	}
	require.False(t, Op(9).Valid())
	require.Equal(t, "op(9)", Op(9).String())
	_, err := ParseOp("mean")
	require.EqualError(t, err, `reduce: unknown operation "mean"; want one of sum, prod, max, min, avg, premulsum, band, bor, bxor`)
}

func TestLevels(t *testing.T) {
	here := Levels()
	require.Equal(t, Generic, here[0])
	auto, err := ParseLevel("auto")
	require.NoError(t, err)
	require.Equal(t, here[len(here)-1], auto)
	for l := range numLevels {
		parsed, err := ParseLevel(l.String())
		require.NoError(t, err)
		require.Equal(t, l, parsed)
	}
	_, err = ParseLevel("sse")
	require.EqualError(t, err, `reduce: unknown SIMD level "sse"; want auto, generic, avx2, avx512`)
	require.ErrorContains(t, Use(numLevels), "this machine has no SIMD level level(3); it has generic")
	for _, l := range here {
		force(t, l)
		require.Equal(t, l, Active())
	}
}

// Levels follow from the features alone.
func TestLevelsOfOtherMachines(t *testing.T) {
	if engines[AVX2].kernels == nil {
		t.Skip("no SIMD kernels for this architecture")
	}
	machine := func(features ...cpuid.FeatureID) func(...cpuid.FeatureID) bool {
		return func(wanted ...cpuid.FeatureID) bool {
			for _, w := range wanted {
				found := false
				for _, f := range features {
					found = found || f == w
				}
				if !found {
					return false
				}
			}
			return true
		}
	}
	haswell := []cpuid.FeatureID{cpuid.AVX, cpuid.AVX2, cpuid.F16C, cpuid.FMA3}
	knightsLanding := append(haswell[:4:4], cpuid.AVX512F, cpuid.AVX512CD)
	skylake := append(haswell[:4:4], cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
	require.Equal(t, []Level{Generic}, levels(machine(cpuid.SSE2)))
	require.Equal(t, []Level{Generic}, levels(machine(cpuid.AVX2)))
	require.Equal(t, []Level{Generic, AVX2}, levels(machine(haswell...)))
	require.Equal(t, []Level{Generic, AVX2}, levels(machine(knightsLanding...)))
	require.Equal(t, []Level{Generic, AVX2, AVX512}, levels(machine(skylake...)))
}

// The bitwise operations take integers alone.
func TestTakes(t *testing.T) {
	for _, typ := range []Type{I8, U8, I16, U16, I32, U32, I64, U64} {
		require.Equal(t, allOps, opsOf(typ), typ.String())
	}
	for _, typ := range []Type{E4M3, E5M2, F16, BF16, F32, F64} {
		require.Equal(t, allOps[:6], opsOf(typ), typ.String())
	}
	require.False(t, Op(9).Takes(I8))
	require.False(t, Sum.Takes(99))
}

// What runs often has a kernel at every level, so that forcing one tests it.
func TestTablesAreFull(t *testing.T) {
	for _, e := range engines {
		if e.level == Generic || e.kernels == nil {
			continue
		}
		for _, typ := range allTypes {
			if typ == E4M3 || typ == E5M2 {
				continue // plain Go does them
			}
			require.NotNil(t, e.kernels[typ.position()][Sum], "%v sum %v", e.level, typ)
			require.Equal(t, Bxor.Takes(typ), e.kernels[typ.position()][Bxor] != nil, "%v bxor %v", e.level, typ)
		}
		for _, typ := range []Type{F16, BF16, F32, F64} {
			for _, op := range opsOf(typ) {
				require.NotNil(t, e.kernels[typ.position()][op], "%v %v %v", e.level, op, typ)
			}
			for _, op := range []Op{Sum, Avg, PremulSum} {
				require.NotNil(t, e.streams[typ.position()][op], "%v %v %v", e.level, op, typ)
			}
		}
	}
}
