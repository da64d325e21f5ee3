package thread

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestStart has so many at a time that the main thread takes its turn, too.
func TestStart(t *testing.T) {
	var mu sync.Mutex
	threads := map[int]bool{}
	var running sync.WaitGroup
	for range 200 {
		running.Add(1)
		go Start(func() {
			defer running.Done()
			id := unix.Gettid()
			for range 10 {
				runtime.Gosched()
				if unix.Gettid() != id {
					t.Error("it moved to another thread")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			threads[id] = true
		})
	}
	running.Wait()
	require.NotContains(t, threads, unix.Getpid(), "the main thread cannot end")
}
