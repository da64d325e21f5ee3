package sys

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Retransmission. Credits and repairs are few, so the loss of one is often found
// by the timer alone, and Linux waits 200 ms at least: at 200 Mbit/s that is 5 MB
// not sent. Linux takes another bound since 6.15 (TCP_RTO_MIN_US in linux/tcp.h);
// before, a route can have one (ip route change ... rto_min 5ms).
const (
	tcpRTOMin     = 45
	leastRTOMicro = 5000
)

// Take moves a connection out of Go's network poller and returns its
// descriptor, non-blocking, with Nagle's algorithm off and soon to retransmit. The connection
// itself is closed; the peer does not notice.
func Take(conn *net.TCPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("take over connection: %w", err)
	}
	fd, dup := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = dup
	}
	if err != nil {
		return -1, fmt.Errorf("take over connection to %v: %w", conn.RemoteAddr(), err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("make connection to %v non-blocking: %w", conn.RemoteAddr(), err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("set TCP_NODELAY on connection to %v: %w", conn.RemoteAddr(), err)
	}
	// An older kernel refuses.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMin, leastRTOMicro)
	Private(fd)
	_ = conn.Close() // The duplicate keeps the connection open.
	return fd, nil
}
