package sys

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Take moves a connection out of Go's network poller and returns its
// descriptor, non-blocking and with Nagle's algorithm off. The connection
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
	_ = conn.Close() // The duplicate keeps the connection open.
	return fd, nil
}
