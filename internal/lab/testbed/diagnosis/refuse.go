package diagnosis

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// calls are the system calls that Refuse knows.
var calls = map[string]uint32{
	"sendmmsg": unix.SYS_SENDMMSG, "recvmmsg": unix.SYS_RECVMMSG, "epoll_pwait2": unix.SYS_EPOLL_PWAIT2,
	"pidfd_open": unix.SYS_PIDFD_OPEN, "io_uring_setup": unix.SYS_IO_URING_SETUP, "memfd_create": unix.SYS_MEMFD_CREATE,
}

// Refuse becomes a command that the kernel refuses some system calls, as an older kernel does
// (ENOSYS) or a sandbox (EPERM).
func Refuse(names []string, errno unix.Errno, command []string) error {
	var code []bpf.Instruction
	code = append(code, bpf.LoadAbsolute{Off: 0, Size: 4}) // the number, in struct seccomp_data
	for i, name := range names {
		number, known := calls[name]
		if !known {
			var all []string
			for n := range calls {
				all = append(all, n)
			}
			slices.Sort(all)
			return fmt.Errorf("%q is no system call that can be refused: want some of %s", name, strings.Join(all, ", "))
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipTrue: uint8(len(names) - i)}) // few
	}
	code = append(code, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	raw, err := bpf.Assemble(code)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, c := range raw {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // this thread sets the filter, and then becomes the command
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return unix.Exec(path, command, os.Environ())
}
