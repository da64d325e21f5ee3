package sys

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RoundTrip returns the shortest round trip that TCP has measured on a connection; 0 where the
// kernel does not say. It needs nothing of the peer's process: kernels acknowledge by themselves.
func RoundTrip(c syscall.Conn) (shortest time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // of a closed connection nothing is known
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			shortest = time.Duration(i.Min_rtt) * time.Microsecond
		}
	})
	return shortest
}
