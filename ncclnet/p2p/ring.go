package p2p

// #include "p2p.h"
import "C"

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxRing = C.P2P_RING

// newRing returns a memfd for a ring with room for so many bytes, sealed so that
// neither end can shrink it under the other.
func newRing(capacity int) (int, error) {
	fd, err := unix.MemfdCreate("torch-mcast-p2p", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	err = unix.Ftruncate(fd, int64(C.p2p_ring_size(C.size_t(capacity))))
	if err == nil { // now, not with a signal when it is written
		err = unix.Fallocate(fd, 0, 0, int64(C.p2p_ring_size(C.size_t(capacity))))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memory of a ring: %w", err)
	}
	return fd, nil
}

// bufferControl sets the sizes of a socket's buffers before it connects or
// listens, while the window can still follow.
func bufferControl(size int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, size)
			if err == nil {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
			}
		})
		if cerr != nil {
			return cerr
		}
		return err
	}
}
