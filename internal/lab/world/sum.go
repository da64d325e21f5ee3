package world

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// value is element k of what a rank gives to a call that sums floats: of sizes so different that the
// order of a sum shows in its bits.
func value(step, rank, k int) float32 {
	h := uint32(step*2654435761) ^ uint32(rank*40503) ^ uint32(k*97)
	h ^= h >> 13
	h *= 0x5bd1e995
	h ^= h >> 15
	return float32(int32(h%20011)-10005) / float32(int32(1)<<(h>>28))
}

// inputs returns n elements of a type, from the first-th on, of a rank's input: bytes (I8, and their sums wrap), F32,
// or BF16.
func inputs(t reduce.Type, step, rank, first, n int) []byte {
	b := make([]byte, n*t.Size())
	for k := range n {
		switch bits := math.Float32bits(value(step, rank, first+k)); t {
		case reduce.I8:
			b[k] = given(step, rank, first+k)
		case reduce.BF16: // its upper half
			binary.LittleEndian.PutUint16(b[2*k:], uint16(bits>>16))
		default:
			binary.LittleEndian.PutUint32(b[4*k:], bits)
		}
	}
	return b
}

// float is element k of F32 or BF16.
func float(t reduce.Type, b []byte, k int) float64 {
	if t == reduce.BF16 {
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*k:])) << 16))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])))
}

// inOrder is the sum of what all ranks give, with the bits that an owner gets in reproducible mode, through
// a switch that has no parent as well as directly.
func (s *Scenario) inOrder(srcs [][]byte, owner int, t reduce.Type) []byte {
	dst := make([]byte, len(srcs[0]))
	if hosts := s.twoLevels(); hosts != nil {
		reduce.FoldNested(dst, srcs, hosts, owner, t, reduce.Sum, 1)
		return dst
	}
	reduce.Fold(dst, reduce.InOrder(srcs, owner, t), t, reduce.Sum, 1)
	return dst
}

// unlike says where a sum of floats is farther from the exact one than any order of adding brings it.
func unlike(got []byte, srcs [][]byte, t reduce.Type) string {
	ulp := 1. / (1 << 23)
	if t == reduce.BF16 {
		ulp = 1. / (1 << 7)
	}
	n := len(got) / t.Size()
	for k := range n {
		var sum, most float64
		for _, src := range srcs {
			v := float(t, src, k)
			sum += v
			most += math.Abs(v)
		}
		is := float(t, got, k)
		if !(math.Abs(is-sum) <= most*float64(len(srcs))*ulp) { // a NaN is no sum either
			return fmt.Sprintf("element %d of %d is %v, not %v", k, n, is, sum)
		}
	}
	return ""
}

// anyOwner stands for an order of adding that is not known.
const anyOwner = -1

// sums checks a result, elements from the first-th on, that an owner has got.
func (s *Scenario) sums(got []byte, t reduce.Type, step, owner, first int) string {
	if t == reduce.I8 {
		return differs(got, func(k int) byte { return summed(step, s.Net.Ranks, first+k) })
	}
	srcs := make([][]byte, s.Net.Ranks)
	for r := range srcs {
		srcs[r] = inputs(t, step, r, first, len(got)/t.Size())
	}
	if wrong := unlike(got, srcs, t); wrong != "" || owner == anyOwner || s.Fast || s.trees() {
		return wrong
	}
	want := s.inOrder(srcs, owner, t)
	return differs(got, func(k int) byte { return want[k] })
}

// Allreduces of so many bytes are one Reduce-Scatter and one Allgather, if ranks have equal parts: all
// ranks' inputs are more than what each sums by itself, and a part is no more than a segment.
const (
	moreThanTiny = 64 << 10
	oneSegment   = 1 << 20
)

// sumsOfAll checks the result of an Allreduce: where it is known which rank sums what, to the bit.
func (s *Scenario) sumsOfAll(got []byte, t reduce.Type, step int) string {
	size := s.Net.Ranks
	n := len(got) / t.Size() / size
	part := n * t.Size()
	if part*size != len(got) || part > oneSegment || part*size*size <= moreThanTiny {
		return s.sums(got, t, step, anyOwner, 0)
	}
	for owner := range size {
		if wrong := s.sums(got[owner*part:][:part], t, step, owner, owner*n); wrong != "" {
			return fmt.Sprintf("the part of rank %d: %s", owner, wrong)
		}
	}
	return ""
}

// floats makes calls of some seeds sum floats. It draws from a source of its own, so that all else is as it was.
func (s *Scenario) floats(seed uint64, share float64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x666c6f617473))}
	for i := range s.Calls {
		if d.chance(share) {
			s.Calls[i].Type = of(d, reduce.F32, reduce.BF16)
		}
	}
}
