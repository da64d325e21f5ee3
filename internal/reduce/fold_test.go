package reduce

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	allTypes = []Type{I8, U8, I16, U16, I32, U32, I64, U64, E4M3, E5M2, F16, BF16, F32, F64}
	allOps   = []Op{Sum, Prod, Max, Min, Avg, PremulSum, Band, Bor, Bxor}
)

// opsOf returns the operations that take a type.
func opsOf(t Type) (ops []Op) {
	for _, op := range allOps {
		if op.Takes(t) {
			ops = append(ops, op)
		}
	}
	return ops
}

// window returns n bytes that start offset bytes behind a cache line, and a
// function that says whether the bytes around them are as they were.
func window(r *rand.Rand, n, offset int) ([]byte, func() bool) {
	const guard, line = 128, 64
	whole := make([]byte, line+guard+offset+n+guard)
	for i := range len(whole) / 8 {
		put(whole, i, 8, r.Uint64())
	}
	before := append([]byte(nil), whole...)
	start := misaligned(whole, line) + guard + offset
	end := start + n
	return whole[start:end:end], func() bool {
		return string(before[:start]) == string(whole[:start]) && string(before[end:]) == string(whole[end:])
	}
}

// plainResult is what the plain kernel makes of the sources.
func plainResult(srcs [][]byte, typ Type, op Op, factor float64) []byte {
	dst := make([]byte, len(srcs[0]))
	plain(dst, srcs, 0, len(dst), typ, op, operand(typ, op, len(srcs), factor))
	return dst
}

// The plain kernel, every type, operation and number of sources, against the oracle.
func TestPlainAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const elements = 300
	for _, typ := range allTypes {
		for _, op := range opsOf(typ) {
			for sources := 1; sources <= 9; sources++ {
				srcs := make([][]byte, sources)
				for i := range srcs {
					srcs[i] = make([]byte, elements*typ.Size())
				}
				fill(r, srcs, typ)
				factor := []float64{2.75, -3.5, 1e-3, math.Inf(1), math.NaN(), -1e30, 1e30}[r.IntN(7)]
				got := plainResult(srcs, typ, op, factor)
				column := make([]uint64, sources)
				for i := range elements {
					for s := range srcs {
						column[s] = get(srcs[s], i, typ.Size())
					}
					want := oracle(column, typ, op, factor)
					if g := get(got, i, typ.Size()); g != want {
						require.Failf(t, "wrong element", "%v %v of %#x, factor %v: got %#x, want %#x", op, typ, column, factor, g, want)
					}
				}
			}
		}
	}
}

// Every kernel of every level gives the bits of the plain one, for any length and
// alignment, and writes nothing else.
func TestKernelsAgainstPlain(t *testing.T) {
	lengths := []int{0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 257, 511, 515, 777}
	for _, l := range Levels() {
		t.Run(l.String(), func(t *testing.T) {
			force(t, l)
			r := rand.New(rand.NewPCG(2, uint64(l)))
			for _, typ := range allTypes {
				for _, op := range opsOf(typ) {
					for sources := 1; sources <= 9; sources++ {
						for range 6 { // all lengths come up for each type
							foldOnce(t, r, typ, op, sources, lengths[r.IntN(len(lengths))])
						}
					}
				}
			}
		})
	}
}

// foldOnce folds n elements out of place, as a part of a large destination, and in place.
func foldOnce(t *testing.T, r *rand.Rand, typ Type, op Op, sources, n int) {
	bytes := n * typ.Size()
	factor := float64(r.IntN(9)-4) / 2
	srcs, kept := make([][]byte, sources), make([][]byte, sources)
	intact := make([]func() bool, sources)
	for i := range srcs {
		srcs[i], intact[i] = window(r, bytes, r.IntN(64))
	}
	fill(r, srcs, typ)
	for i := range srcs {
		kept[i] = append([]byte(nil), srcs[i]...)
	}
	want := plainResult(srcs, typ, op, factor)
	what := fmt.Sprintf("%v %v, %d sources, %d elements", op, typ, sources, n)

	dst, dstIntact := window(r, bytes, r.IntN(64))
	Fold(dst, srcs, typ, op, factor)
	if string(dst) != string(want) || !dstIntact() {
		require.Failf(t, "out of place", "%s: got %x, want %x, surroundings intact: %v", what, dst, want, dstIntact())
	}
	for i := range srcs {
		if string(srcs[i]) != string(kept[i]) {
			require.Failf(t, "source changed", "%s: source %d", what, i)
		}
	}
	for _, offset := range []int{r.IntN(64/typ.Size()) * typ.Size(), r.IntN(64)} {
		part, partIntact := window(r, bytes, offset)
		FoldPart(part, srcs, typ, op, factor, large)
		if string(part) != string(want) || !partIntact() {
			require.Failf(t, "part", "%s, offset %d: got %x, want %x, surroundings intact: %v", what, offset, part, want,
				partIntact())
		}
	}
	in := r.IntN(sources)
	Fold(srcs[in], srcs, typ, op, factor)
	for i := range srcs {
		expected := kept[i]
		if i == in {
			expected = want
		}
		if string(srcs[i]) != string(expected) || !intact[i]() {
			require.Failf(t, "in place", "%s: destination is source %d, source %d is wrong", what, in, i)
		}
	}
}

// Only a large destination is stored around the caches, since only there it pays.
func TestLargeDestinationsAreStreamed(t *testing.T) {
	force(t, Active())
	streamed := 0
	spy := engine{vector: 64, kernels: &table{}, streams: &table{}}
	spy.streams[positionF32][Sum] = func(dst []byte, _ [][]byte, from, to int, _ uint64) {
		require.Zero(t, misaligned(dst[from:], 64))
		require.Zero(t, (to-from)%512)
		streamed += to - from
	}
	active.Store(&spy)
	whole := make([]byte, 4096+64)
	dst := whole[misaligned(whole, 64):][:4096]
	a, b := make([]byte, 4096), make([]byte, 4096)
	for _, c := range []struct {
		what     string
		dst      []byte
		whole    int
		streamed int
	}{
		{"aligned", dst, large, 4096},
		{"behind a boundary", dst[4:], large, 3584},
		{"element across a boundary", dst[1:4093], large, 0},
		{"shorter than a block", dst[:508], large, 0},
		{"ends before a boundary", dst[4:8], large, 0},
		{"empty", dst[:0], large, 0},
		{"small", dst, large - 1, 0},
		{"in place", a, large, 0},
	} {
		streamed = 0
		n := len(c.dst)
		FoldPart(c.dst, [][]byte{b[:n], a[:n]}, F32, Sum, 0, c.whole)
		require.Equal(t, c.streamed, streamed, c.what)
	}
}

// Fold cuts long work into segments: their seams, and the tail behind the last.
func TestSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range []Type{BF16, F32, U8} {
			foldOnce(t, r, typ, Avg, 3, (2*segment+segment/2)/typ.Size()+7)
			foldOnce(t, r, typ, Max, 2, segment/typ.Size())
		}
	}
}

// Many ranks: more sources than an integer type can count, and more than there
// are streams a processor can prefetch.
func TestManySources(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range allTypes {
			for _, op := range opsOf(typ) {
				foldOnce(t, r, typ, op, 256, 70)
			}
		}
	}
}

// Results anyone can check by hand, at every level.
func TestByHand(t *testing.T) {
	bits := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	for _, l := range Levels() {
		force(t, l)
		for _, c := range []struct {
			typ      Type
			op       Op
			elements []uint64
			factor   float64
			want     uint64
		}{
			{F32, Sum, []uint64{bits(1e8), bits(1), bits(-1e8)}, 0, bits(0)}, // rank order: the 1 is lost
			{F32, Sum, []uint64{bits(1e8), bits(-1e8), bits(1)}, 0, bits(1)},
			{F32, Avg, []uint64{bits(1), bits(0), bits(0)}, 0, bits(1.0 / 3)},
			{F32, PremulSum, []uint64{bits(3), bits(5)}, 0.5, bits(4)},
			{F32, Max, []uint64{1 << 31, 0}, 0, 0},
			{F32, Max, []uint64{0, 1 << 31}, 0, 0},
			{F32, Min, []uint64{0, 1 << 31}, 0, 1 << 31},
			{F32, Min, []uint64{1 << 31, 0}, 0, 1 << 31},
			{F32, Max, []uint64{0xffc00000, 0x7f800000}, 0, 0x7fc00000},
			{F32, Min, []uint64{0x7f800001, 0xff800000, 0}, 0, 0x7fc00000},
			{F32, Sum, []uint64{0x7f800000, 0xff800000}, 0, 0x7fc00000},
			{F32, Sum, []uint64{0x7f812345}, 0, 0x7fc00000},
			{F16, Sum, []uint64{0x7bff, 0x7bff, 0xfbff}, 0, 0x7bff},            // exceeds f16 on the way
			{F16, Sum, []uint64{0x7bff, 0x7bff}, 0, 0x7c00},                    // overflows
			{F16, Sum, []uint64{0x0001, 0x0001}, 0, 0x0002},                    // subnormal
			{BF16, Sum, []uint64{0x4380, 0x3f80, 0x3f80}, 0, 0x4381},           // 256 + 1 + 1, rounded once
			{BF16, Sum, []uint64{0x4380, 0x3f80}, 0, 0x4380},                   // 257: tie to even
			{E4M3, Sum, []uint64{0x58, 0x38, 0x38}, 0, 0x59},                   // 16 + 1 + 1, rounded once
			{E4M3, Sum, []uint64{0x58, 0x38}, 0, 0x58},                         // 17: tie to even
			{E4M3, Sum, []uint64{0x7e, 0x7e, 0xfe}, 0, 0x7e},                   // exceeds e4m3 on the way
			{E4M3, Sum, []uint64{0xfe, 0xfe}, 0, 0xfe},                         // saturates
			{E5M2, Sum, []uint64{0x7b, 0x7b}, 0, 0x7b},                         // saturates
			{E5M2, Max, []uint64{0x7c, 0x3c}, 0, 0x7b},                         // infinity does, too
			{E5M2, Sum, []uint64{0x7c, 0xfc}, 0, 0x7f},                         // NaN
			{I8, Sum, []uint64{0x7f, 1}, 0, 0x80},                              // wraps
			{I8, Avg, []uint64{0xfd, 0xfe, 0}, 0, 0xff},                        // -5/3 = -1
			{U8, Avg, []uint64{0xff, 2}, 0, 0},                                 // 257 wraps to 1
			{I32, PremulSum, []uint64{3, 4}, -2.9, 0xfffffff2},                 // -2 * 7
			{U16, PremulSum, []uint64{3, 4}, -2.9, 0},                          // clamped to 0
			{I64, Max, []uint64{1 << 63, 1<<64 - 1}, 0, 1<<64 - 1},             // -1
			{U64, Max, []uint64{1 << 63, 1<<64 - 1, 5}, 0, 1<<64 - 1},          //
			{I64, Prod, []uint64{1<<64 - 3, 7}, 0, 1<<64 - 21},                 //
			{F64, Prod, []uint64{0x4008 << 48, 0x4000 << 48}, 0, 0x4018 << 48}, // 3 * 2
			{U8, Band, []uint64{0b1110, 0b0111, 0b1010}, 0, 0b0010},            //
			{I16, Bor, []uint64{0x8001, 0x0010}, 0, 0x8011},                    //
			{I64, Bxor, []uint64{1<<64 - 1, 1, 1 << 63}, 0, 1<<63 - 2},         //
		} {
			const n = 37 // all of a kernel: blocks, vectors and the tail
			size := c.typ.Size()
			srcs := make([][]byte, len(c.elements))
			for s := range srcs {
				srcs[s] = make([]byte, n*size)
				for i := range n {
					put(srcs[s], i, size, c.elements[s])
				}
			}
			dst := make([]byte, n*size)
			Fold(dst, srcs, c.typ, c.op, c.factor)
			for i := range n {
				require.Equal(t, c.want, get(dst, i, size), "%v: %v %v of %#x, element %d", l, c.op, c.typ, c.elements, i)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	here := Levels()
	force(t, Active())
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(allTypes).Draw(rt, "type")
		op := rapid.SampledFrom(opsOf(typ)).Draw(rt, "op")
		n := rapid.IntRange(0, 600).Draw(rt, "elements")
		sources := rapid.IntRange(1, 12).Draw(rt, "sources")
		factor := rapid.Float64().Draw(rt, "factor")
		srcs := make([][]byte, sources)
		for i := range srcs {
			srcs[i] = make([]byte, n*typ.Size())
		}
		fill(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)), srcs, typ)
		at := rapid.IntRange(0, max(n-1, 0)).Draw(rt, "at")
		for _, l := range here {
			require.NoError(rt, Use(l))
			dst := make([]byte, n*typ.Size())
			Fold(dst, srcs, typ, op, factor)
			require.Equal(rt, plainResult(srcs, typ, op, factor), dst, "level %v", l)
			if n > 0 {
				column := make([]uint64, sources)
				for s := range srcs {
					column[s] = get(srcs[s], at, typ.Size())
				}
				require.Equal(rt, oracle(column, typ, op, factor), get(dst, at, typ.Size()), "level %v, element %d", l, at)
			}
		}
	})
}

// FuzzFold takes any bytes as sources.
func FuzzFold(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"), uint8(2), uint8(7), uint8(0), 1.0)
	f.Fuzz(func(t *testing.T, data []byte, sources, typ, op uint8, factor float64) {
		tt, n := allTypes[int(typ)%len(allTypes)], 1+int(sources)%16
		o := opsOf(tt)[int(op)%len(opsOf(tt))]
		length := len(data) / n / tt.Size() * tt.Size()
		srcs := make([][]byte, n)
		for i := range srcs {
			srcs[i] = data[i*length : (i+1)*length]
		}
		want := plainResult(srcs, tt, o, factor)
		for _, l := range Levels() {
			force(t, l)
			dst := make([]byte, length)
			Fold(dst, srcs, tt, o, factor)
			require.Equal(t, want, dst, "%v: %v %v, %d sources", l, o, tt, n)
		}
	})
}

func TestFoldAllocatesNothing(t *testing.T) {
	const bytes = 4096 + 6 // a tail, too
	dst := make([]byte, bytes)
	srcs := [][]byte{make([]byte, bytes), make([]byte, bytes)}
	for _, l := range Levels() {
		force(t, l)
		for _, typ := range []Type{I16, E4M3, E5M2, F16, BF16} {
			for _, op := range opsOf(typ) {
				for _, whole := range []int{bytes, large} {
					allocs := testing.AllocsPerRun(20, func() { FoldPart(dst, srcs, typ, op, 2, whole) })
					require.Zero(t, allocs, "%v %v %v, whole %d", l, op, typ, whole)
				}
			}
		}
	}
}

// Goroutines fold while others change the level.
func TestConcurrentUse(t *testing.T) {
	force(t, Active())
	r := rand.New(rand.NewPCG(5, 5))
	srcs := [][]byte{make([]byte, 4098), make([]byte, 4098), make([]byte, 4098)}
	fill(r, srcs, BF16)
	want := plainResult(srcs, BF16, Avg, 0)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, l := range Levels() {
				dst := make([]byte, len(want))
				for range 50 {
					if err := Use(l); err != nil {
						t.Error(err)
					}
					Fold(dst, srcs, BF16, Avg, 0)
					if string(dst) != string(want) {
						t.Error("wrong sum")
					}
				}
			}
		})
	}
	group.Wait()
}

func TestFoldRefusesMistakes(t *testing.T) {
	b := make([]byte, 8)
	for message, call := range map[string]func(){
		"reduce: type(12) is no element type": func() { Fold(b, [][]byte{b}, 12, Sum, 0) },
		"reduce: op(9) is no operation":       func() { Fold(b, [][]byte{b}, F32, 9, 0) },
		"reduce: bxor of bf16: want an integer type": func() {
			Fold(b, [][]byte{b}, BF16, Bxor, 0)
		},
		"reduce: no source; want at least one": func() { Fold(b, nil, F32, Sum, 0) },
		"reduce: 7 bytes are no multiple of the 4 of f32": func() {
			Fold(b[:7], [][]byte{b[:7]}, F32, Sum, 0)
		},
		"reduce: source 1 has 4 bytes, the destination 8; want the same": func() { Fold(b, [][]byte{b, b[:4]}, F32, Sum, 0) },
		"reduce: source 0 has 8 bytes, the destination 0; want the same": func() { Fold(nil, [][]byte{b}, F32, Sum, 0) },
	} {
		require.PanicsWithValue(t, message, call)
	}
}
