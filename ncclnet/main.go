// Package main builds libnccl-net-mcast.so (-buildmode=c-shared): the C API of
// mcast.h, for torch_mcast and other programs. Handles are integers; no Go pointer reaches C, and
// buffers from C are used only until their operation is done.
package main

/*
#include "error_rank.h"
#include "mcast.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/version"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

func main() {} // required by -buildmode=c-shared, never called

// versionText is C memory that lives as long as the library.
var versionText = C.CString(version.Long(reduce.Active()))

//export goVersion
func goVersion() *C.char { return versionText }

// fail writes err to the caller's buffer, notes which rank it is about, and returns its code.
func fail(err error, buf *C.char, size C.size_t) C.int {
	if err == nil {
		return C.MCAST_OK
	}
	if buf != nil && size > 0 {
		b := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(size))
		n := copy(b[:len(b)-1], err.Error())
		b[n] = 0
	}
	rank, ok := group.RankOf(err)
	if !ok {
		rank = -1
	}
	C.mcast_set_error_rank(C.int(rank))
	return code(err)
}

// aboutRank reports whether another rank has caused an error.
func aboutRank(err error) bool {
	_, named := group.RankOf(err)
	return named || errors.As(err, new(*remoteError))
}

func aboutMismatch(err error) bool {
	_, ok := group.MismatchOf(err)
	return ok
}

// guard turns a panic, which must not cross into C, into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("internal error: %v", r)
	}
}

func argument(format string, args ...any) error {
	return &group.ArgumentError{Text: fmt.Sprintf(format, args...)}
}

// memory is a buffer of the caller's. Its length is bounded so that a garbled
// one is an error and not a crash.
func memory(name string, p unsafe.Pointer, n C.size_t) ([]byte, error) {
	const most = 1 << 46
	switch {
	case n > most:
		return nil, argument("%s: %d bytes; at most %d are allowed", name, uint64(n), uint64(most))
	case n == 0:
		return []byte{}, nil
	case p == nil:
		return nil, argument("%s is NULL but should hold %d bytes", name, uint64(n))
	}
	if kind := gpudirect.KindOf(p); !kind.OnHost() {
		return nil, argument("%s is %v memory, which mcast_device_allgather and the like take", name, kind)
	}
	return unsafe.Slice((*byte)(p), int(n)), nil
}
