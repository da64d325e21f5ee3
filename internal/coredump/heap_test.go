package coredump

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/coredump/coredumptest"
)

var data [64]byte

// TestOmitHeap: the whole heap is left out, over several arenas, also memory taken since the last call; and nothing
// else.
func TestOmitHeap(t *testing.T) {
	stack, done := make(chan uintptr), make(chan struct{})
	defer close(done)
	go func() {
		var local byte
		stack <- uintptr(unsafe.Pointer(&local))
		<-done
	}()
	another := <-stack
	var taken []uintptr
	for range 2 {
		for range 3 {
			taken = append(taken, coredumptest.Grow(t))
		}
		OmitHeap()
		for _, last := range taken {
			require.True(t, coredumptest.Omitted(t, last))
		}
	}
	require.Greater(t, taken[len(taken)-1]-taken[0], uintptr(arenaSize))
	require.True(t, coredumptest.Omitted(t, another), "a goroutine's stack")
	require.False(t, coredumptest.Omitted(t, uintptr(unsafe.Pointer(&data))), "not the heap")
}

func BenchmarkOmitHeap(b *testing.B) {
	for range b.N {
		OmitHeap()
	}
}
