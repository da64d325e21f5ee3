package world

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// value is element k, an F32, of what a rank gives to a call: of sizes so different that the order of
// a sum shows in its bits.
func value(step, rank, k int) float32 {
	h := uint32(step*2654435761) ^ uint32(rank*40503) ^ uint32(k*97)
	h ^= h >> 13
	h *= 0x5bd1e995
	h ^= h >> 15
	return float32(int32(h%20011)-10005) / float32(int32(1)<<(h>>28))
}

// values returns n elements from the first-th on.
func values(step, rank, first, n int) []byte {
	b := make([]byte, 4*n)
	for k := range n {
		binary.LittleEndian.PutUint32(b[4*k:], math.Float32bits(value(step, rank, first+k)))
	}
	return b
}

// inOrder is the sum of what all ranks give, from the first-th element on, with the bits that an owner
// gets in reproducible mode, through a switch that has no parent as well as directly.
func (s *Scenario) inOrder(step, owner, first, n int) []byte {
	srcs := make([][]byte, s.Net.Ranks)
	for r := range srcs {
		srcs[r] = values(step, r, first, n)
	}
	dst := make([]byte, 4*n)
	if hosts := s.twoLevels(); hosts != nil {
		reduce.FoldNested(dst, srcs, hosts, owner, reduce.F32, reduce.Sum, 1)
		return dst
	}
	reduce.Fold(dst, reduce.InOrder(srcs, owner, reduce.F32), reduce.F32, reduce.Sum, 1)
	return dst
}

// unlike says where a sum of all ranks' elements, from the first-th on, is farther from the exact one
// than any order of adding brings it.
func unlike(got []byte, step, size, first int) string {
	for k := range len(got) / 4 {
		var sum, most float64
		for r := range size {
			v := float64(value(step, r, first+k))
			sum += v
			most += math.Abs(v)
		}
		is := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*k:])))
		if !(math.Abs(is-sum) <= most*float64(size)/(1<<23)) { // a NaN is no sum either
			return fmt.Sprintf("element %d of %d is %v, not %v", k, len(got)/4, is, sum)
		}
	}
	return ""
}

// sums checks a result of F32 elements, from the first-th on, that an owner has got; -1: of which
// ranks own parts.
func (s *Scenario) sums(got []byte, step, owner, first int) string {
	if wrong := unlike(got, step, s.Net.Ranks, first); wrong != "" || owner < 0 || s.Fast || s.trees() {
		return wrong
	}
	want := s.inOrder(step, owner, first, len(got)/4)
	return differs(got, func(k int) byte { return want[k] })
}
