package reduce

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// nestedHosts deals ranks to hosts, but not in the order of their numbers; unevenHosts gives hosts different
// numbers of ranks as well.
var (
	nestedHosts = [][]int{{0, 3}, {1, 5}, {2, 4}}
	unevenHosts = [][]int{{0, 3, 5}, {1}, {2, 4}}
)

// contributions are of six ranks: whole numbers, small enough for all sums and products to be exact.
func contributions(random *rand.Rand, t Type) [][]byte {
	srcs := make([][]byte, 6)
	for r := range srcs {
		srcs[r] = make([]byte, 16*t.Size())
		for i := range 16 {
			x := 1 + random.IntN(3)
			switch t {
			case F32:
				put(srcs[r], i, 4, uint64(math.Float32bits(float32(x))))
			case F64:
				put(srcs[r], i, 8, math.Float64bits(float64(x)))
			case BF16:
				put(srcs[r], i, 2, uint64(math.Float32bits(float32(x))>>16))
			default:
				put(srcs[r], i, t.Size(), uint64(x))
			}
		}
	}
	return srcs
}

// TestNestedIsFoldWhereExact holds the reduction in two levels to that in one where the order of sums
// does not matter.
func TestNestedIsFoldWhereExact(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []Type{I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, BF16} {
		for _, op := range opsOf(typ) {
			if typ == BF16 && (op == Avg || op == Prod) {
				continue // rounded twice
			}
			srcs := contributions(random, typ)
			for owner := range srcs {
				want, got := make([]byte, len(srcs[0])), make([]byte, len(srcs[0]))
				Fold(want, InOrder(slices.Clone(srcs), owner, typ), typ, op, 2)
				for _, hosts := range [][][]int{nestedHosts, unevenHosts} {
					FoldNested(got, srcs, hosts, owner, typ, op, 2)
					require.Equal(t, want, got, "%v %v of rank %d", typ, op, owner)
				}
			}
		}
	}
}

// TestNestedOrder shows in which order floats are summed: those of a host first, the owner's host last.
func TestNestedOrder(t *testing.T) {
	big, one := float32(1<<24), float32(1)
	srcs := make([][]byte, 6)
	for r, x := range []float32{one, big, -big, one, one, -big} { // hosts: 1+1, big-big, -big+1
		srcs[r] = make([]byte, 4)
		put(srcs[r], 0, 4, uint64(math.Float32bits(x)))
	}
	got := make([]byte, 4)
	FoldNested(got, srcs, nestedHosts, 0, F32, Sum, 0)
	require.Equal(t, math.Float32bits(-big+1+2), uint32(get(got, 0, 4)), "(0 + (-big+1)) + 2")
}

// TestNestedOrderOfUnevenHosts: a rank in no column gets the sum made by the rank that stands for it. In
// that sum the contribution of the rank that stands for it is the last of its host.
func TestNestedOrderOfUnevenHosts(t *testing.T) {
	big, one := float32(1<<25), float32(1)
	srcs := make([][]byte, 6)
	for r, x := range []float32{one, 0, 0, big, 0, -big} { // host 0: big - big, then 1
		srcs[r] = make([]byte, 4)
		put(srcs[r], 0, 4, uint64(math.Float32bits(x)))
	}
	got := make([]byte, 4)
	for _, owner := range unevenHosts[0] {
		FoldNested(got, srcs, unevenHosts, owner, F32, Sum, 0)
		require.Equal(t, math.Float32bits(1), uint32(get(got, 0, 4)), "as for rank 0; (1-big) + big is 0")
	}
}

// TestMeanOfShortFloatsStaysInRange: the sum is more than the type holds, the mean is not.
func TestMeanOfShortFloatsStaysInRange(t *testing.T) {
	srcs := make([][]byte, 6)
	for r := range srcs {
		srcs[r] = make([]byte, 2)
		put(srcs[r], 0, 2, 0x7b00) // 57344; the largest of F16 is 65504
	}
	got := make([]byte, 2)
	FoldNested(got, srcs, nestedHosts, 1, F16, Avg, 0)
	x := halfToFloat(uint16(get(got, 0, 2)))
	require.InEpsilon(t, 57344, x, 0.002)
}

// halfToFloat decodes a finite positive F16.
func halfToFloat(h uint16) float64 {
	if h&0x7c00 == 0x7c00 {
		return math.Inf(1)
	}
	return math.Ldexp(float64(h&0x3ff|0x400), int(h>>10)-25)
}
