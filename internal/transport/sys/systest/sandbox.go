package systest

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Denial is a system call that a sandbox makes fail.
type Denial struct {
	Call  uint32
	With  []Argument // only with these; none: with any
	Errno syscall.Errno
}

// Argument is the lower half of an argument of a system call, counted from 0.
type Argument struct {
	Number int
	Value  uint32
}

// InSandbox runs f on a thread of its own where the given system calls fail with e, as a
// container's seccomp profile makes those fail that it does not know.
func InSandbox(t testing.TB, e syscall.Errno, calls []uint32, f func()) {
	t.Helper()
	var denials []Denial
	for _, call := range calls {
		denials = append(denials, Denial{Call: call, Errno: e})
	}
	InSandboxWith(t, denials, f)
}

// InSandboxWith is InSandbox, with an error for each call.
func InSandboxWith(t testing.TB, denials []Denial, f func()) {
	t.Helper()
	var entered error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		if entered = Enter(denials); entered == nil {
			f()
		}
	}()
	<-done
	require.NoError(t, entered, "seccomp")
}

// Enter has calls of this thread, and of the program that it becomes, fail for good. The caller has locked the thread.
func Enter(denials []Denial) error {
	const ( // struct seccomp_data
		number    = 0
		arguments = 16 // of 8 bytes each, the lower half first on little-endian machines
	)
	var filter []unix.SockFilter
	for _, d := range denials {
		left := 2*len(d.With) + 2 // instructions, from the jump on
		when := func(at, is uint32) {
			left -= 2
			filter = append(filter, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(left + 1), K: is})
		}
		when(number, d.Call)
		for _, a := range d.With {
			when(uint32(arguments+8*a.Number), a.Value)
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(d.Errno)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(program)), 0, 0)
}
