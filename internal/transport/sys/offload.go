package sys

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SegmentSize is the control message UDP_SEGMENT, which makes one message many datagrams.
type SegmentSize struct {
	length uint64
	level  int32
	typ    int32
	size   uint16
	_      [6]byte
}

// Set fills the message in: datagrams of size bytes each; the last may be shorter.
func (s *SegmentSize) Set(size int) {
	*s = SegmentSize{
		length: uint64(unix.CmsgLen(2)), level: unix.IPPROTO_UDP, typ: unix.UDP_SEGMENT, size: uint16(size), // at most 65507
	}
}

// Attach makes s the only control message of h.
func (s *SegmentSize) Attach(h *Msghdr) {
	h.Control, h.Controllen = uintptr(unsafe.Pointer(s)), uint64(unsafe.Sizeof(*s))
}

// MergedSize returns how long each datagram of a received message of total bytes is (the last
// may be shorter): the size that UDP_GRO gives in its control message, or total if nothing was
// merged. It is at least 1.
func MergedSize(h *Msghdr, control []byte, total int) int {
	if h.Controllen >= uint64(unix.CmsgLen(4)) &&
		binary.NativeEndian.Uint32(control[8:]) == unix.IPPROTO_UDP &&
		binary.NativeEndian.Uint32(control[12:]) == unix.UDP_GRO {
		if size := binary.NativeEndian.Uint32(control[16:]); size > 0 {
			return int(size)
		}
	}
	return max(1, total)
}

// HasBatches reports whether sendmmsg and recvmmsg work on a socket: Linux has them since 3.0,
// but sandboxes may refuse them, with ENOSYS or EPERM.
func HasBatches(fd int) bool {
	_, send := SendBatch(fd, nil)
	_, receive := ReceiveBatch(fd, nil)
	return send == 0 && receive == 0
}
