// Package thread gives code that moves between namespaces an operating system thread of its own.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Start begins f on a thread that ends with it, so that f may change the thread as it likes. When
// the thread ends, processes end that asked the kernel for that (Pdeathsig). Start returns when
// there is such a thread.
func Start(f func()) {
	held := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: it would stay in f's namespaces, keep them alive, and be
			// what /proc shows of this process. As long as it is held, f runs on another.
			Start(f)
			runtime.UnlockOSThread()
			close(held)
			return
		}
		close(held)
		f()
	}()
	<-held
}
