package tcp

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// ringSize is the receive buffer of a stream: large enough for few system calls, small
// enough that the bytes are still in the cache when they are summed. A multiple of 8, so
// that elements never straddle the wrap.
const ringSize = 256 << 10

// stream is the connection to one rank. Arrived bytes lie in a ring, between the counts of
// bytes consumed and received.
type stream struct {
	line     record.Line
	ring     []byte
	received uint64
	consumed uint64
	readable bool // the kernel may hold bytes for us
	writable bool // the kernel may have room for ours
	ending   bool // the peer has closed: keep reading until the end
	stall    sys.Stall
	// unacked says that something was sent that was not acknowledged when Rest looked last.
	unacked bool
	err     error
}

// buffered returns the bytes that have arrived and lie in one piece.
func (s *stream) buffered() []byte {
	at := int(s.consumed % ringSize)
	n := int(s.received - s.consumed) // at most ringSize
	return s.ring[at:min(at+n, ringSize)]
}

// fill reads into the free part of the ring and returns how many bytes came.
func (s *stream) fill() int {
	start, free := s.received%ringSize, ringSize-(s.received-s.consumed)
	room := s.ring[start:min(start+free, ringSize)]
	if len(room) == 0 {
		return 0
	}
	n := s.receive(room)
	s.received += uint64(n)
	return n
}

// receive reads from the kernel, and returns how many bytes came.
func (s *stream) receive(room []byte) int {
	n, err := s.line.Receive(room)
	switch {
	case errors.Is(err, unix.EAGAIN):
		s.readable = s.ending // of a record that will not be whole, the end is next
		return 0
	case err != nil:
		s.fail(err)
		return 0
	case n == 0:
		s.fail(io.EOF)
		return 0
	}
	if n < len(room) {
		s.readable = s.ending
	}
	return n
}

// flush sends bytes that were taken without room in the kernel, if there is room by now.
func (s *stream) flush() {
	if !s.writable || !s.line.Pending() {
		return
	}
	if err := s.line.Flush(); err != nil {
		s.fail(err)
	} else {
		s.writable = !s.line.Pending()
	}
}

// fail keeps the first error.
func (s *stream) fail(cause error) {
	s.readable, s.writable = false, false
	if s.err != nil {
		return
	}
	var e syscall.Errno
	var stalled *sys.StallError
	switch {
	case errors.As(cause, &stalled):
		s.err = cause
	case errors.Is(cause, io.EOF):
		s.err = fmt.Errorf("tcp: it closed its stream: %w", cause)
	case errors.As(cause, &e):
		s.err = fmt.Errorf("tcp: %w", e)
	default:
		s.err = fmt.Errorf("tcp: %w", cause)
	}
}
