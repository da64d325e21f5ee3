package reduce

import (
	"fmt"
	"testing"
)

// sizes are lengths of one slice: in the cache, and beyond it.
var sizes = []struct {
	name  string
	bytes int
}{{"64KiB", 64 << 10}, {"64MiB", 64 << 20}}

// report gives the bandwidth of reading sources and writing one destination.
func report(b *testing.B, slices, bytes int) {
	b.Helper()
	b.ReportMetric(float64(slices)*float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

// touched returns a slice with its pages all in memory and all different. Zero
// and numbers made of bytes 0x3c are normal numbers of every type.
func touched(n int) []byte {
	s := make([]byte, n)
	for i := range s {
		s[i] = 0x3c
	}
	return s
}

// BenchmarkFold is for comparing kernels; "make bench-reduce" compares them
// with the machine.
func BenchmarkFold(b *testing.B) {
	for _, size := range sizes {
		dst := touched(size.bytes)
		all := make([][]byte, 8)
		for i := range all {
			all[i] = touched(size.bytes)
		}
		for _, typ := range []Type{F32, F64, BF16, F16, I32} {
			for _, n := range []int{2, 4, 8} {
				srcs := all[:n]
				b.Run(fmt.Sprintf("%s/%v/%d", size.name, typ, n), func(b *testing.B) {
					for b.Loop() {
						Fold(dst, srcs, typ, Sum, 1)
					}
					report(b, n+1, size.bytes)
				})
			}
		}
	}
}

// BenchmarkFoldPart is what a Reduce-Scatter does: it folds a large destination
// piece by piece from rings that stay in the cache. whole=0 is for comparison:
// the same with ordinary stores.
func BenchmarkFoldPart(b *testing.B) {
	const piece, total = 128 << 10, 64 << 20
	dst := touched(total)
	srcs := [][]byte{touched(piece), touched(piece), touched(piece), touched(piece)}
	for _, typ := range []Type{F32, BF16, F16} {
		for _, whole := range []int{0, total} {
			b.Run(fmt.Sprintf("%v/whole=%d", typ, whole), func(b *testing.B) {
				for b.Loop() {
					for at := 0; at < total; at += piece {
						FoldPart(dst[at:at+piece], srcs, typ, Avg, 1, whole)
					}
				}
				report(b, len(srcs)+1, total)
			})
		}
	}
}

// BenchmarkLevels compares the kernels in the cache, four sources each.
func BenchmarkLevels(b *testing.B) {
	const bytes = 64 << 10
	dst := touched(bytes)
	srcs := [][]byte{touched(bytes), touched(bytes), touched(bytes), touched(bytes)}
	for _, l := range Levels() {
		for _, typ := range []Type{F32, BF16, F16, I32} {
			for _, op := range []Op{Sum, Max, Avg} {
				b.Run(fmt.Sprintf("%v/%v/%v", l, typ, op), func(b *testing.B) {
					force(b, l)
					for b.Loop() {
						Fold(dst, srcs, typ, op, 1)
					}
					report(b, len(srcs)+1, bytes)
				})
			}
		}
	}
}

// BenchmarkSteps is what a switch does with a contribution of one slot. The
// detour is CombineNext by Begin and Combine.
func BenchmarkSteps(b *testing.B) {
	const bytes = 8 << 10
	src, acc, room := touched(bytes), touched(2*bytes), touched(2*bytes)
	for _, typ := range []Type{F32, BF16, F16} {
		wide := bytes / typ.Size() * typ.Accumulator().Size()
		acc, room := acc[:wide], room[:wide]
		for _, op := range []Op{Sum, PremulSum} {
			for _, c := range []struct {
				name    string
				touches int // bytes
				step    func()
			}{
				{"begin", bytes + wide, func() { Begin(acc, src, typ, op, 1) }},
				{"combine", 3 * wide, func() { Combine(acc, room, typ, op) }},
				{"next", bytes + 2*wide, func() { CombineNext(acc, src, typ, op, 1) }},
				{"detour", bytes + 2*wide, func() { Begin(room, src, typ, op, 1); Combine(acc, room, typ, op) }},
				{"finish", bytes + wide, func() { Finish(src, acc, typ, op, 4) }},
			} {
				b.Run(fmt.Sprintf("%v/%v/%s", typ, op, c.name), func(b *testing.B) {
					for b.Loop() {
						c.step()
					}
					report(b, 1, c.touches)
				})
			}
		}
	}
}
