package p2p

// #cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow
// #include <stdlib.h>
// #include "p2p.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// open turns the sockets of a connection, and its ring unless that is negative, and
// its queue pairs unless they are nil, into a comm. The sockets and the ring stay the
// caller's, who closes them. sealed: the kernel seals the comm's bytes in both directions.
func open(
	o *Options, sending bool, conns []net.Conn, ring int, pairs *queues, sealed bool,
) (comm unsafe.Pointer, err error) {
	peer := C.CString(conns[0].RemoteAddr().String())
	defer C.free(unsafe.Pointer(peer))
	s := C.struct_p2p_setup{
		lanes: C.int(len(conns)), memfd: C.int(ring), cut: C.size_t(cutOf(o, conns[0])),
		zerocopy: C.int(zerocopies[o.Zerocopy]), timeout: C.uint(min(o.Timeout.Milliseconds(), math.MaxInt32)), peer: peer,
	}
	if sending {
		s.sending = 1
	}
	if sealed {
		s.sealed = 1
	}
	if pairs != nil {
		s.verbs = pairs.v
	}
	var fds []int
	defer func() {
		if err != nil {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
	}()
	for i, c := range conns {
		fd, err := duplicate(c)
		if err != nil {
			return nil, fmt.Errorf("p2p: %w", err)
		}
		fds = append(fds, fd)
		s.fds[i] = C.int(fd)
		if sending && o.Buffer == 0 && local(c) {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, localBuffer) // slower without
		}
	}
	c, err := C.p2p_open(&s)
	if c == nil {
		return nil, fmt.Errorf("p2p: set up the connection with %v: %w", conns[0].RemoteAddr(), err)
	}
	if pairs != nil {
		pairs.v = nil
	}
	watchSenders(o.Warn)
	return unsafe.Pointer(c), nil
}

// Within a host the cores that copy are the limit. A message below localCut uses one socket, which takes less of their
// time. Bytes that wait in the kernel should fit the cores' caches: localBuffer bounds the send buffer of a socket.
const (
	localCut    = 1 << 20
	localBuffer = 256 << 10
)

// local tells whether both ends of a connection have one address.
func local(c net.Conn) bool {
	here, hok := c.LocalAddr().(*net.TCPAddr)
	there, tok := c.RemoteAddr().(*net.TCPAddr)
	return hok && tok && here.IP.Equal(there.IP)
}

// cutOf returns the size from which messages use all lanes; 0: C's default.
func cutOf(o *Options, c net.Conn) int {
	if o.Cut == 0 && local(c) {
		return localCut
	}
	return o.Cut
}

// duplicate returns a descriptor of a connection that Go's poller knows nothing of.
func duplicate(c net.Conn) (fd int, err error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return -1, fmt.Errorf("%T is no TCP connection", c)
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(cerr, err); err == nil {
		sys.Private(fd)
	}
	return fd, err
}

// closeComm ends a comm that nobody has taken.
func closeComm(comm unsafe.Pointer) { C.p2p_close((*C.struct_p2p_comm)(comm)) }
