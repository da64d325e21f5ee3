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

// keyOf returns the key of memory for a comm that moves messages with an RDMA device: the local key to send, the
// remote key to receive. Tests set it.
var keyOf = func(Comm, []byte, bool) uint32 { return 0 }

// Comm is a comm for Go callers: tests and benchmarks. The plugin calls C.
// Memory that it sends from or receives into must not be Go's, see Alloc.
type Comm struct{ c *C.struct_p2p_comm }

// Request is a send or receive in flight; nil when 32 are.
type Request struct{ r *C.struct_p2p_request }

// Code is one of p2p.h's error codes, with its text.
type Code struct {
	Code int
	Text string
}

func (e *Code) Error() string { return fmt.Sprintf("p2p: code %d: %s", e.Code, e.Text) }

// The codes of p2p.h.
const (
	BadArgument = int(C.P2P_E_ARGUMENT)
	Remote      = int(C.P2P_E_REMOTE)
	System      = int(C.P2P_E_SYSTEM)
	Mismatch    = int(C.P2P_E_MISMATCH)
)

// Wrap makes a Comm of what Connect or Accept returned.
func Wrap(comm unsafe.Pointer) Comm { return Comm{(*C.struct_p2p_comm)(comm)} }

// Alloc returns C memory; Free releases it.
func Alloc(size int) []byte {
	if size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(C.calloc(1, C.size_t(size))), size)
}

// Free releases what Alloc returned.
func Free(b []byte) { C.free(unsafe.Pointer(unsafe.SliceData(b))) }

func (c Comm) err(code C.int) error {
	if code == C.P2P_OK {
		return nil
	}
	return &Code{int(code), C.GoString(C.p2p_error(c.c))}
}

// tag is what messages of Go callers have, for a profiler.
const tag = 7

// Profile is p2p_profile; profiler is a nccl_profiler. The parent of messages is the comm.
func (c Comm) Profile(profiler unsafe.Pointer) { C.p2p_profile(c.c, C.nccl_profiler(profiler)) }

// Isend is p2p_isend.
func (c Comm) Isend(b []byte) (*Request, error) {
	var r *C.struct_p2p_request
	err := c.err(C.p2p_isend(c.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), C.uint32_t(keyOf(c, b, false)),
		tag, unsafe.Pointer(c.c), &r))
	if r == nil {
		return nil, err
	}
	return &Request{r}, err
}

// Irecv is p2p_irecv. It starts with a request of 0x1, as NCCL may.
func (c Comm) Irecv(b []byte) (*Request, error) {
	slot := (*uintptr)(C.calloc(1, C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(slot))
	*slot = 1
	at := (**C.struct_p2p_request)(unsafe.Pointer(slot))
	err := c.err(C.p2p_irecv(c.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), C.uint32_t(keyOf(c, b, true)),
		tag, unsafe.Pointer(c.c), at))
	if *slot == 0 {
		return nil, err
	}
	return &Request{*at}, err
}

// Iflush is p2p_iflush.
func (c Comm) Iflush(b []byte) (*Request, error) {
	var r *C.struct_p2p_request
	err := c.err(C.p2p_iflush(c.c, unsafe.Pointer(unsafe.SliceData(b)), C.uint32_t(keyOf(c, b, true)), &r))
	if r == nil {
		return nil, err
	}
	return &Request{r}, err
}

// Test is p2p_test.
func (r *Request) Test() (done bool, size int, err error) {
	var d C.int
	var n C.size_t
	comm := Comm{C.p2p_of(r.r)}
	err = comm.err(C.p2p_test(r.r, &d, &n))
	return d == 1, int(n), err
}

// deviceOf returns the device that moves a comm's bytes, or nil.
func deviceOf(c Comm) *Device { return DeviceAt(C.p2p_device_of(c.c)) }

// shape returns the number of sockets, whether there is a ring, and whether
// large messages are sent without a copy at present.
func (c Comm) shape() (lanes int, ring, zerocopy bool) {
	var n, r, z C.int
	C.p2p_shape(c.c, &n, &r, &z)
	return int(n), r == 1, z == 1
}

// Error is p2p_error.
func (c Comm) Error() string { return C.GoString(C.p2p_error(c.c)) }

// Close is p2p_close.
func (c Comm) Close() { C.p2p_close(c.c) }
