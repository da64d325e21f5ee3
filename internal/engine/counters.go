package engine

import (
	"sync/atomic" // go.uber.org/atomic has nothing for words of plain memory
	"unsafe"
)

// counters hands what a protocol has counted from the goroutine that drives it to all others,
// without a lock. T is a struct of nothing but uint64s, which a test holds.
type counters[T any] struct{ shared T }

func (c *counters[T]) store(now T) {
	to := words(&c.shared)
	for i, n := range words(&now) {
		if to[i] != n { // most rounds change nothing; nobody else writes
			atomic.StoreUint64(&to[i], n)
		}
	}
}

func (c *counters[T]) load() (s T) {
	to := words(&s)
	from := words(&c.shared)
	for i := range to {
		to[i] = atomic.LoadUint64(&from[i])
	}
	return s
}

// words is the memory of a struct of uint64s.
func words[T any](s *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(s)), unsafe.Sizeof(*s)/8)
}
