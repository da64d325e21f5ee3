package record

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Conn is a connection that carries its stream in records. One goroutine at a time may read and one write; after a
// Write that failed no other is possible.
type Conn struct {
	net.Conn
	guard *guard
}

// New protects a connection on which a greeting has given both ends their secrets, and nothing else was said since.
func New(c net.Conn, s Secrets) (*Conn, error) {
	g, err := newGuard(s)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, guard: g}, nil
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	return c.guard.write(b, c.Conn.Write)
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	g := c.guard
	for len(b) > 0 && !g.buffered() {
		n, err := c.Conn.Read(g.room())
		g.filled += n
		if err != nil && !g.buffered() {
			return 0, err // of time may be over; what has arrived of a record stays
		}
	}
	n, err := g.read(b, func([]byte) (int, error) { return 0, unix.EAGAIN })
	if n == 0 && len(b) > 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// CloseWrite is as for net.TCPConn.
func (c *Conn) CloseWrite() error {
	if t, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection that the records are on, as for tls.Conn.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SyscallConn implements syscall.Conn. Bytes written there go in no record.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
