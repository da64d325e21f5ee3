package sys

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Retransmission. Credits and repairs are few, so the loss of one is often found
// by the timer alone, and Linux waits 200 ms at least: at 200 Mbit/s that is 5 MB
// not sent. Linux takes another bound since 6.15 (TCP_RTO_MIN_US in linux/tcp.h);
// before, a route can have one (ip route change ... rto_min 5ms).
const (
	tcpRTOMax     = 44
	tcpRTOMin     = 45
	leastRTOMicro = 5000
	mostRTOMilli  = 1000
	giveUpMilli   = 24 * 60 * 60 * 1000
)

// Persist makes TCP repeat unacknowledged bytes once a second at least, for a day. By itself TCP doubles the wait
// each time, so after a link that was down for some seconds nothing passes for as long again, and where a link
// comes and goes each repeat may meet it down. And it gives up after net.ipv4.tcp_retries2 such waits, which then
// would be 14 s; so it is given another limit. That limit also ends connections to a peer without room, but a rank
// with a late program has a right to have no room. So the limit is far away: others say who is dead. Linux before
// 6.15 has no such bound, so a connection there is left as it is, also where a sandbox forbids the bound.
func Persist(conn syscall.Conn) {
	if Wish(conn, unix.TCP_USER_TIMEOUT, giveUpMilli) && !Wish(conn, tcpRTOMax, mostRTOMilli) {
		Wish(conn, unix.TCP_USER_TIMEOUT, 0)
	}
}

// Wish sets an option of a TCP connection without which it serves as well, and reports whether the kernel took it.
func Wish(conn syscall.Conn, option, value int) (taken bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false // it is closed, which its next use says
	}
	_ = raw.Control(func(fd uintptr) {
		taken = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value) == nil
	})
	return taken
}

// Taken stands for a TCP connection after Take has moved its descriptor. It can only be closed.
type Taken struct {
	net.Conn // closed
	fd       int
}

// Close closes the descriptor.
func (t *Taken) Close() error { return unix.Close(t.fd) }

// Take moves a TCP connection out of Go's network poller, for which the process needs one more descriptor for a
// moment, and returns its descriptor: non-blocking, with Nagle's algorithm off and soon to retransmit. The peer
// does not notice. In conns a Taken stands for the connection then, so the owner of conns owns the descriptor, and
// to take it again returns the same.
func Take(conns map[int]net.Conn, rank int) (int, error) {
	switch conn := conns[rank].(type) {
	case *Taken:
		return conn.fd, nil
	case *net.TCPConn:
		fd, err := duplicate(conn)
		if err != nil {
			return -1, err
		}
		_ = conn.Close() // the duplicate keeps the connection open
		conns[rank] = &Taken{conn, fd}
		return fd, nil
	default:
		return -1, fmt.Errorf("take over connection: it is a %T, want one of TCP", conn)
	}
}

func duplicate(conn *net.TCPConn) (int, error) {
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
	// Go has set TCP_NODELAY. An older kernel refuses this one.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMin, leastRTOMicro)
	Private(fd)
	return fd, nil
}
