package main

/*
#include "mcast.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

//export goSend
func goSend(
	handle C.int64_t, buf unsafe.Pointer, bytes C.size_t, to C.int, tag C.uint64_t, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return begin(handle, work, e, n, func(g *group.Group) (pending, error) {
		b, err := memory("mcast_send: buf", buf, bytes)
		if err != nil {
			return nil, err
		}
		return g.StartSend(b, int(to), uint64(tag))
	})
}

//export goRecv
func goRecv(
	handle C.int64_t, buf unsafe.Pointer, bytes C.size_t, from C.int, tag C.uint64_t, work *C.int64_t, e *C.char,
	n C.size_t,
) C.int {
	return begin(handle, work, e, n, func(g *group.Group) (pending, error) {
		b, err := memory("mcast_recv: buf", buf, bytes)
		if err != nil {
			return nil, err
		}
		return g.StartReceive(b, int(from), uint64(tag))
	})
}

//export goSource
func goSource(work C.int64_t, rank *C.int, bytes *C.size_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		w, err := works.get(int64(work))
		if err != nil {
			return err
		}
		m, ok := w.(*group.Message)
		if !ok || rank == nil || bytes == nil {
			return argument("mcast_source: want the work of a mcast_recv, and neither rank nor bytes NULL")
		}
		select {
		case <-m.Done():
		default:
			return argument("mcast_source: the work is not done")
		}
		if err := m.Err(); err != nil {
			return err
		}
		from, length := m.Source()
		*rank, *bytes = C.int(from), C.size_t(length)
		return nil
	}()
	return fail(err, e, n)
}

// sizesOf returns the bytes of each rank's part, and of all together.
func sizesOf(name string, sizes *C.size_t, ranks int) (parts []int, all C.size_t, err error) {
	if sizes == nil {
		return nil, 0, argument("%s must not be NULL", name)
	}
	for _, size := range unsafe.Slice(sizes, ranks) {
		if uint64(size) > math.MaxInt64-uint64(all) {
			return nil, 0, argument("%s: more bytes than there can be", name)
		}
		all += size
		parts = append(parts, int(size))
	}
	return parts, all, nil
}

//export goAllToAll
func goAllToAll(
	handle C.int64_t, send, recv unsafe.Pointer, sent, received *C.size_t, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return begin(handle, work, e, n, func(g *group.Group) (pending, error) {
		out, outBytes, err := sizesOf("mcast_all_to_all: sent", sent, g.Size())
		if err != nil {
			return nil, err
		}
		in, inBytes, err := sizesOf("mcast_all_to_all: received", received, g.Size())
		if err != nil {
			return nil, err
		}
		s, err := memory("mcast_all_to_all: send", send, outBytes)
		if err != nil {
			return nil, err
		}
		r, err := memory("mcast_all_to_all: recv", recv, inBytes)
		if err != nil {
			return nil, err
		}
		return g.StartAllToAll(s, r, out, in)
	})
}

//export goGather
func goGather(
	handle C.int64_t, send, recv unsafe.Pointer, bytes C.size_t, root C.int, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return begin(handle, work, e, n, func(g *group.Group) (pending, error) {
		s, err := memory("mcast_gather: send", send, bytes)
		if err != nil {
			return nil, err
		}
		var all []byte
		if int(root) == g.Rank() {
			if all, err = shards("mcast_gather: recv", recv, bytes, g.Size()); err != nil {
				return nil, err
			}
		}
		return g.StartGather(s, all, int(root))
	})
}

//export goScatter
func goScatter(
	handle C.int64_t, send, recv unsafe.Pointer, bytes C.size_t, root C.int, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return begin(handle, work, e, n, func(g *group.Group) (pending, error) {
		r, err := memory("mcast_scatter: recv", recv, bytes)
		if err != nil {
			return nil, err
		}
		var all []byte
		if int(root) == g.Rank() {
			if all, err = shards("mcast_scatter: send", send, bytes, g.Size()); err != nil {
				return nil, err
			}
		}
		return g.StartScatter(all, r, int(root))
	})
}
