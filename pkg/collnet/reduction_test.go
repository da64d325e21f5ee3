package collnet

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestTypesAndOpsAreAll: there is one of each that the sums know, with its size.
func TestTypesAndOpsAreAll(t *testing.T) {
	known := map[reduce.Type]Type{}
	for v := Int8; v.valid(); v++ {
		require.True(t, types[v].is.Valid(), v)
		require.NotContains(t, known, types[v].is)
		require.Equal(t, types[v].is.Size(), v.Size())
		known[types[v].is] = v
	}
	reductions := map[reduce.Op]Op{}
	for v := Sum; int(v) < len(ops); v++ {
		require.True(t, ops[v].is.Valid(), v)
		require.Equal(t, ops[v].is.String(), v.String())
		reductions[ops[v].is] = v
	}
	for i := range 1 + math.MaxUint8 {
		if of := reduce.Type(i); of.Valid() {
			require.Contains(t, known, of)
		}
		if of := reduce.Op(i); of.Valid() {
			require.Contains(t, reductions, of)
		}
	}
	require.Equal(t, "float32 premulsum Type(0) Type(99) Op(9)",
		fmt.Sprint(Float32, " ", PremulSum, " ", Type(0), " ", Type(99), " ", Op(9)))
	require.Zero(t, Type(99).Size())
}

// TestEachType reduces the ones of two ranks to one.
func TestEachType(t *testing.T) {
	one := map[Type][]byte{
		Int8: {1}, Uint8: {1}, Int16: {1, 0}, Uint16: {1, 0}, Int32: Bytes([]int32{1}), Uint32: Bytes([]uint32{1}),
		Int64: Bytes([]int64{1}), Uint64: Bytes([]uint64{1}), Float8E4M3: {0x38}, Float8E5M2: {0x3c},
		Float16: {0, 0x3c}, BFloat16: {0x80, 0x3f}, Float32: Bytes([]float32{1}), Float64: Bytes([]float64{1}),
	}
	ctx := t.Context()
	require.NoError(t, InProcess(ctx, 2, Options{}, func(g *Group) error {
		for v := Int8; v.valid(); v++ {
			if one[v] == nil {
				return fmt.Errorf("the table of this test has no %v", v)
			}
			for _, op := range []Op{Max, Min, Prod, Avg} {
				got := make([]byte, v.Size())
				if err := g.Allreduce(ctx, one[v], got, Reduction{Type: v, Op: op}); err != nil {
					return fmt.Errorf("%v %v: %w", op, v, err)
				}
				if string(got) != string(one[v]) {
					return fmt.Errorf("%v of two ones of %v: %x", op, v, got)
				}
			}
		}
		sum, root := []float64{3}, make([]float64, 1)
		if err := g.Reduce(ctx, Bytes(sum), Bytes(root), Reduction{Type: Float64, Op: PremulSum, Factor: 0.5},
			1); err != nil {
			return err
		}
		if want := float64(3 * g.Rank()); root[0] != want {
			return fmt.Errorf("rank %d has %v, want %v", g.Rank(), root[0], want)
		}
		return nil
	}))
}

func TestBadReductions(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, InProcess(ctx, 1, Options{}, func(g *Group) error {
		b := make([]byte, 8)
		for _, c := range []struct {
			r    Reduction
			want string
		}{
			{Reduction{}, "Reduction.Type is Type(0): want int8, uint8, int16"},
			{Reduction{Type: 77}, "Reduction.Type is Type(77)"},
			{Reduction{Type: Int8, Op: 9}, "Reduction.Op is Op(9): want sum, prod, max, min, avg, premulsum, band, bor, bxor"},
			{Reduction{Type: BFloat16, Op: Bor}, "Reduction.Op is bor and Type bfloat16: bitwise operators take integers"},
			{Reduction{Type: Int8, Op: PremulSum}, "Reduction.Factor is 0: premulsum multiplies by it"},
			{Reduction{Type: Int8, Factor: 2}, "Reduction.Factor is 2 and Op sum: only premulsum takes a factor"},
		} {
			_, errS := g.StartReduceScatter(b, b, c.r)
			_, errR := g.StartReduce(b, b, c.r, 0)
			_, errA := g.StartAllreduce(b, b, c.r)
			for call, errs := range map[string][2]error{
				"reduce-scatter": {g.ReduceScatter(ctx, b, b, c.r), errS}, "reduce": {g.Reduce(ctx, b, b, c.r, 0), errR},
				"allreduce": {g.Allreduce(ctx, b, b, c.r), errA},
			} {
				for _, err := range errs {
					var bad *ArgumentError
					require.ErrorAs(t, err, &bad)
					require.ErrorContains(t, err, call+": "+c.want)
				}
			}
		}
		return nil
	}))
}

func TestBytes(t *testing.T) {
	x := []uint16{0x0102, 0x0304}
	b := Bytes(x)
	require.Len(t, b, 4)
	b[0], b[1] = 0xff, 0xff
	require.Equal(t, uint16(0xffff), x[0])
	require.Empty(t, Bytes[float64](nil))
	require.Len(t, Bytes([]float64{1}), 8)
}
