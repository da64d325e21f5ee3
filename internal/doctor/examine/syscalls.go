package examine

import (
	"crypto/rand"
	"errors"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// syscalls tries the system calls that the library uses, with arguments that have no effect, and reads whether a
// seccomp filter is there to refuse some. A kernel that lacks a call answers ENOSYS, and some filters do so too;
// others answer EPERM.
func (e *examination) syscalls() {
	const nothing = ^uintptr(0) // no descriptor
	for _, call := range []struct {
		name   string
		number uintptr
		args   [3]uintptr
	}{
		{"sendmmsg", unix.SYS_SENDMMSG, [3]uintptr{nothing}},
		{"recvmmsg", unix.SYS_RECVMMSG, [3]uintptr{nothing}},
		{"memfd_create", unix.SYS_MEMFD_CREATE, [3]uintptr{}},
		{"epoll_pwait2", unix.SYS_EPOLL_PWAIT2, [3]uintptr{nothing}},
		{"eventfd2", unix.SYS_EVENTFD2, [3]uintptr{0, nothing}}, // with flags that there are not
		{"pidfd_open", unix.SYS_PIDFD_OPEN, [3]uintptr{0}},
	} {
		_, _, err := unix.Syscall(call.number, call.args[0], call.args[1], call.args[2])
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			e.Kernel.Blocked = append(e.Kernel.Blocked, doctor.Blocked{Name: call.name, Error: err.Error()})
		}
	}
	if err := tryUnix(); err != nil {
		e.Kernel.Blocked = append(e.Kernel.Blocked, doctor.Blocked{Name: doctor.UnixSockets, Error: err.Error()})
	}
	for line := range strings.Lines(text(e.root, "proc/thread-self/status")) {
		if value, is := strings.CutPrefix(line, "Seccomp:"); is {
			e.Kernel.Filtered = strings.TrimSpace(value) == "2" // SECCOMP_MODE_FILTER
		}
	}
}

// tryUnix connects to this process, as ranks of a host do to each other.
func tryUnix() error {
	ln, err := net.Listen("unix", "@torch-mcast-doctor-"+rand.Text())
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		return err
	}
	return c.Close()
}
