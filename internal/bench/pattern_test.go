package bench

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

const someBytes = 3*period + 1234 // wraps around the table three times

func TestEveryWrongByteIsFound(t *testing.T) {
	mine := table(reduce.U8, 1)
	b := make([]byte, someBytes)
	fill(b, mine, 5)
	require.Zero(t, wrong(b, mine, 5, 0))
	for _, i := range []int{0, 1, period - 1, period, 2 * period, someBytes - 1} {
		b[i]++
		require.EqualValues(t, 1, wrong(b, mine, 5, 0), i)
		b[i]--
	}
	require.Zero(t, wrong(b[1000:], mine, 5, 1000))
	require.Zero(t, wrong(nil, mine, 5, 1000))
}

func TestOtherBytesAreWrong(t *testing.T) {
	mine := table(reduce.U8, 1)
	b := make([]byte, someBytes)
	fill(b, mine, 5)
	most := uint64(someBytes * 99 / 100) // one in 256 agrees by chance
	require.Greater(t, wrong(b, table(reduce.U8, 2), 5, 0), most, "another rank's")
	for iter := range 200 {
		if iter != 5 {
			require.Greater(t, wrong(b, mine, iter, 0), most, "iteration %d's", iter)
		}
	}
	for _, chunk := range []int{64, 1024, 1440, 4096, 65472, 128 << 10} {
		for i := chunk; i+chunk <= someBytes; i += chunk {
			require.NotZero(t, wrong(b[:chunk], mine, 5, i), "chunk of %d bytes at another's place", chunk)
		}
	}
}

func TestFoldedIsWhatTheKernelsCompute(t *testing.T) {
	for _, dtype := range []reduce.Type{reduce.I8, reduce.U16, reduce.I32, reduce.U64, reduce.E4M3, reduce.E5M2,
		reduce.F16, reduce.BF16, reduce.F32, reduce.F64} {
		for op := reduce.Sum; op.Takes(dtype); op++ {
			all := tables(dtype, 5)
			got := make([]byte, len(all[0]))
			want := folded(all, nil, dtype, op, 2)
			reduce.Fold(got, reduce.InOrder(all, 2, dtype), dtype, op, factor)
			require.Zero(t, wrong(got, want, 0, 0), "%v %v", dtype, op)
		}
	}
}

// TestExactSumsHaveNoOrder adds in the order of ranks, and as a tree of two nodes does.
func TestExactSumsHaveNoOrder(t *testing.T) {
	for _, dtype := range []reduce.Type{reduce.I32, reduce.F32, reduce.F64} {
		for _, exact := range []bool{false, true} {
			b := &bench{dtype: dtype, exact: exact}
			all := b.tables(6)
			flat := folded(all, nil, dtype, reduce.Sum, 5)
			tree := folded([][]byte{folded(all[:3], nil, dtype, reduce.Sum, 2), folded(all[3:], nil, dtype, reduce.Sum, 2)}, nil,
				dtype, reduce.Sum, 1)
			differ := wrong(flat, tree, 0, 0)
			if exact || dtype == reduce.I32 {
				require.Zero(t, differ, "%v", dtype)
			} else {
				require.NotZero(t, differ, "%v", dtype)
			}
		}
	}
}

func TestWrongOfAny(t *testing.T) {
	all := tables(reduce.F32, 3)
	b := make([]byte, 4*30_001)
	fill(b, all[0], 3)
	other := make([]byte, len(b))
	fill(other, all[2], 3)
	copy(b[40_004:90_000], other[40_004:90_000]) // two owners, borders anywhere
	require.Zero(t, wrongOfAny(b, all, 3))
	require.EqualValues(t, (90_000-40_004)/4, wrongOfAny(b, all[:2], 3))
	for _, i := range []int{0, 4095, 40_001, 40_004, len(b) - 1} {
		b[i] ^= 0x80
		require.EqualValues(t, 1, wrongOfAny(b, all, 3), i)
		b[i] ^= 0x80
	}
	require.NotZero(t, wrongOfAny(b, all, 4))
}

func TestLoadsNoticeCorruption(t *testing.T) {
	p := participant{rank: 1, ranks: 3}
	for _, inPlace := range []bool{false, true} {
		a := gatherOf(p, 1000, inPlace)
		a.fill(7)
		for r := range 3 {
			fill(a.recv[r*1000:][:1000], a.tables[r], 7)
		}
		require.Zero(t, a.check(7))
		for i := range a.recv {
			a.recv[i] ^= 0x80
			require.EqualValues(t, 1, a.check(7))
			a.recv[i] ^= 0x80
		}
		require.NotZero(t, a.check(8))

		b := &bench{dtype: reduce.F32, op: reduce.Sum, inPlace: inPlace}
		sources := make([][]byte, 3)
		for r := range sources {
			s := scatterOf(participant{rank: r, ranks: 3}, 1000, b)
			s.fill(7)
			sources[r] = slices.Clone(s.send[1000:2000])
		}
		s := scatterOf(p, 1000, b)
		s.fill(7)
		reduce.Fold(s.recv, reduce.InOrder(sources, 1, reduce.F32), reduce.F32, reduce.Sum, factor)
		require.Zero(t, s.check(7))
		for i := range s.recv {
			s.recv[i] ^= 0x80
			require.EqualValues(t, 1, s.check(7))
			s.recv[i] ^= 0x80
		}
	}
	c := broadcastOf(p, 1000, 2)
	fill(c.buf, table(reduce.U8, 2), 7)
	require.Zero(t, c.check(7))
	c.fill(8) // not the root: nothing is written
	require.Zero(t, c.check(7))
	c.buf[999]++
	require.EqualValues(t, 1, c.check(7))
}
