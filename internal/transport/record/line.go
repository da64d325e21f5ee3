package record

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Line is the descriptor of a TCP connection that nobody waits for, with the records on it where it is protected. It
// belongs to one goroutine at a time.
type Line struct {
	FD    int // -1: none
	guard *guard
	// The functions by which guard sends and receives, made once.
	send, receive func([]byte) (int, error)
}

// Take takes a connection over as sys.Take does; from a Conn it also takes the buffered records.
func Take(conns map[int]net.Conn, rank int) (Line, error) {
	c, protected := conns[rank].(*Conn)
	if !protected {
		fd, err := sys.Take(conns, rank)
		return Line{FD: fd}, err
	}
	below := map[int]net.Conn{rank: c.Conn}
	fd, err := sys.Take(below, rank)
	c.Conn = below[rank]
	return Line{
		FD: fd, guard: c.guard,
		send:    func(b []byte) (int, error) { return failing(sys.Send(fd, b)) },
		receive: func(b []byte) (int, error) { return failing(sys.Receive(fd, b)) },
	}, err
}

// failing returns a number as an error where it is one.
func failing(n int, e syscall.Errno) (int, error) {
	if e != 0 {
		return n, e
	}
	return n, nil
}

// Send puts bytes into the stream without waiting and returns how many it has taken. While Pending, of the last some
// are not on their way: Flush is to be called when the descriptor has room.
func (l *Line) Send(b []byte) (int, error) {
	if l.guard == nil {
		return failing(sys.Send(l.FD, b))
	}
	return l.guard.write(b, l.send)
}

// Flush sends pending records, as far as there is room.
func (l *Line) Flush() error {
	if !l.Pending() {
		return nil
	}
	if err := l.guard.flush(l.send); !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}

// Pending reports whether bytes were taken that wait for room.
func (l *Line) Pending() bool { return l.guard != nil && l.guard.pending() }

// Receive reads from the stream without waiting and returns how many bytes came, less than there was room for only if
// there are no more at the moment; 0 without an error is the stream's end.
func (l *Line) Receive(b []byte) (int, error) {
	if l.guard == nil {
		return failing(sys.Receive(l.FD, b))
	}
	return l.guard.read(b, l.receive)
}

// Buffered reports whether Receive has something to return that the descriptor's readiness does not show.
func (l *Line) Buffered() bool { return l.guard != nil && l.guard.buffered() }
