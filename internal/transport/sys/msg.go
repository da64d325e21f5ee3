package sys

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Iovec has the kernel's layout, as do Msghdr and Mmsghdr, with addresses as plain numbers: they lie in
// memory from Map, where the garbage collector does not look. The caller that fills one keeps the
// memory behind the addresses alive until the call returns.
type Iovec struct {
	Base uintptr
	Len  uint64
}

// Set points the vector at b.
func (v *Iovec) Set(b []byte) {
	v.Base = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	v.Len = uint64(len(b))
}

// Msghdr is struct msghdr of 64-bit Linux.
type Msghdr struct {
	Name       uintptr
	Namelen    uint32
	_          uint32
	Iov        uintptr
	Iovlen     uint64
	Control    uintptr
	Controllen uint64
	Flags      int32
	_          int32
}

// Mmsghdr is struct mmsghdr of 64-bit Linux.
type Mmsghdr struct {
	Hdr Msghdr
	Len uint32 // bytes that were moved
	_   uint32
}

// Map returns a zeroed T outside Go's heap. T must not contain Go pointers.
func Map[T any]() (*T, error) {
	var t T
	b, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(t)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes for message headers: %w", unsafe.Sizeof(t), err)
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

// Unmap gives memory from Map back. Nil is allowed.
func Unmap[T any](t *T) error {
	if t == nil {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(t), unsafe.Sizeof(*t))
}

// SendBatch sends messages without waiting and returns how many were taken.
func SendBatch(fd int, msgs []Mmsghdr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(msgs))),
			uintptr(len(msgs)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// ReceiveBatch receives messages without waiting and returns how many came.
func ReceiveBatch(fd int, msgs []Mmsghdr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(msgs))),
			uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// SendMessage sends one message without waiting and returns how many bytes went.
func SendMessage(fd int, msg *Msghdr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// ReceiveMessage receives one message without waiting and returns its length.
func ReceiveMessage(fd int, msg *Msghdr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// Send puts bytes into a stream without waiting and returns how many went.
func Send(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// Receive reads from a stream without waiting and returns how many bytes
// came; 0 without an error is the stream's end.
func Receive(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

// Peek copies the first bytes of the first message or of the stream in a socket's queue, without
// waiting, and returns how many. They stay in the queue.
func Peek(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
		if e != unix.EINTR {
			return count(n, e), e
		}
	}
}

func count(n uintptr, e syscall.Errno) int {
	if e != 0 {
		return 0
	}
	return int(n) // the kernel returns at most MAX_RW_COUNT
}
