// Package caller sends and receives over the comms of package p2p from Go, for tests and the lab. The plugin calls C.
package caller

/*
#cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow -I${SRCDIR}/../..
#include <stdlib.h>
#include "../p2p.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// KeyOf returns the key of memory for a comm that moves messages with an RDMA device: the local key to send, the
// remote key to receive. Tests set it.
var KeyOf = func(Comm, []byte, bool) uint32 { return 0 }

// Comm is what Connect or Accept returned. Memory that it sends from or receives into must not be Go's, see Alloc.
type Comm struct{ P unsafe.Pointer }

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

// Alloc returns C memory; Free releases it.
func Alloc(size int) []byte {
	if size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(C.calloc(1, C.size_t(size))), size)
}

// Free releases what Alloc returned.
func Free(b []byte) { C.free(unsafe.Pointer(unsafe.SliceData(b))) }

func (c Comm) c() *C.struct_p2p_comm { return (*C.struct_p2p_comm)(c.P) }

func (c Comm) err(code C.int) error {
	if code == C.P2P_OK {
		return nil
	}
	return &Code{int(code), C.GoString(C.p2p_error(c.c()))}
}

// Tag is the tag of all messages, for a profiler.
const Tag = 7

// Profile is p2p_profile; profiler is a nccl_profiler. The parent of messages is the comm.
func (c Comm) Profile(profiler unsafe.Pointer) { C.p2p_profile(c.c(), C.nccl_profiler(profiler)) }

// Isend is p2p_isend.
func (c Comm) Isend(b []byte) (*Request, error) {
	var r *C.struct_p2p_request
	key := C.uint32_t(KeyOf(c, b, false))
	err := c.err(C.p2p_isend(c.c(), unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), key, Tag, c.P, &r))
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
	key := C.uint32_t(KeyOf(c, b, true))
	err := c.err(C.p2p_irecv(c.c(), unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), key, Tag, c.P, at))
	if *slot == 0 {
		return nil, err
	}
	return &Request{*at}, err
}

// Iflush is p2p_iflush.
func (c Comm) Iflush(b []byte) (*Request, error) {
	var r *C.struct_p2p_request
	err := c.err(C.p2p_iflush(c.c(), unsafe.Pointer(unsafe.SliceData(b)), C.uint32_t(KeyOf(c, b, true)), &r))
	if r == nil {
		return nil, err
	}
	return &Request{r}, err
}

// Test is p2p_test.
func (r *Request) Test() (done bool, size int, err error) {
	var d C.int
	var n C.size_t
	comm := Comm{unsafe.Pointer(C.p2p_of(r.r))}
	err = comm.err(C.p2p_test(r.r, &d, &n))
	return d == 1, int(n), err
}

// Device is p2p_device_of.
func (c Comm) Device() unsafe.Pointer { return C.p2p_device_of(c.c()) }

// Shape returns the number of sockets or queue pairs, whether there is a ring, and whether large messages are sent
// without a copy at present.
func (c Comm) Shape() (lanes int, ring, zerocopy bool) {
	var n, r, z C.int
	C.p2p_shape(c.c(), &n, &r, &z)
	return int(n), r == 1, z == 1
}

// Close is p2p_close.
func (c Comm) Close() { C.p2p_close(c.c()) }
