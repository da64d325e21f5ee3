package systest

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// InSandbox runs f on a thread of its own where the given system calls fail with e, as a
// container's seccomp profile makes those fail that it does not know.
func InSandbox(t testing.TB, e syscall.Errno, calls []uint32, f func()) {
	t.Helper()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // The call's number.
	for _, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(e)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var entered error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		if entered = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); entered != nil {
			return
		}
		entered = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(program)), 0, 0)
		if entered == nil {
			f()
		}
	}()
	<-done
	require.NoError(t, entered, "seccomp")
}
