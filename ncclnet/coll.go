package main

/*
#include "coll.h"
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// collGroup is a group that NCCL has connected.
type collGroup struct {
	*group.Group
	pending sync.WaitGroup // requests that Go will still write to
	warned  sync.Once      // why they fail
}

var collGroups = handles[*collGroup]{what: "CollNet communicator"}

// post begins an operation that completes a request of C's. The request stays until its operation
// has ended: coll_close waits for that. It is left COLL_FREE if too much waits already: then NCCL
// is to ask again.
func post(
	call string, handle C.int64_t, r *C.struct_coll_request, f func(*group.Group) (*group.Work, error),
) C.nccl_result {
	return verdict(call, func() error {
		g, err := collGroups.get(int64(handle))
		if err != nil {
			return argument("%v", err)
		}
		g.pending.Add(1)
		posted := false
		defer func() { // after a panic as well
			if !posted {
				g.pending.Done()
			}
		}()
		w, err := f(g.Group)
		if err != nil {
			if errors.Is(err, engine.ErrBusy) {
				r.state = C.COLL_FREE
				return nil
			}
			return err
		}
		posted = true
		w.OnDone(func(err error) {
			g.complete(call, r, err)
		})
		return nil
	})
}

// complete tells C that a request is done. The first failure is logged; those
// that follow have the same cause.
func (g *collGroup) complete(call string, r *C.struct_coll_request, err error) {
	state := uint32(C.COLL_DONE)
	if err != nil {
		state = C.COLL_FAILED
		r.result = C.int(resultOf(err))
		var fault *group.Fault
		if !errors.As(err, &fault) || fault.Kind != group.Closed {
			g.warned.Do(func() { say(C.NCCL_LOG_WARN, call+": "+err.Error()) })
		}
	}
	atomic.StoreUint32((*uint32)(&r.state), state)
	g.pending.Done()
}

// buffer is memory that C has checked, as a slice.
func buffer(p unsafe.Pointer, n C.size_t) []byte {
	if n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(p), int(n)) // bounded by the address space
}

// bounded refuses a window with numbers that do not fit an int.
func bounded(w *C.struct_coll_window) (shard, offset int, err error) {
	if w.shard > math.MaxInt64 || w.offset > math.MaxInt64 {
		return 0, 0, argument("%d bytes a rank, window at %d: that is too much", uint64(w.shard), uint64(w.offset))
	}
	return int(w.shard), int(w.offset), nil // checked
}

//export goCollAllgather
func goCollAllgather(
	handle C.int64_t, send unsafe.Pointer, own C.size_t, window unsafe.Pointer, w C.struct_coll_window,
	r *C.struct_coll_request,
) C.nccl_result {
	return post("iallgather", handle, r, func(g *group.Group) (*group.Work, error) {
		shard, offset, err := bounded(&w)
		if err != nil {
			return nil, err
		}
		return g.StartAllgatherPart(buffer(send, own), buffer(window, w.bytes), shard, offset)
	})
}

//export goCollReduceScatter
func goCollReduceScatter(
	handle C.int64_t, window unsafe.Pointer, w C.struct_coll_window, recv unsafe.Pointer, own C.size_t, dtype, op C.int,
	r *C.struct_coll_request,
) C.nccl_result {
	return post("ireducescatter", handle, r, func(g *group.Group) (*group.Work, error) {
		shard, offset, err := bounded(&w)
		if err != nil {
			return nil, err
		}
		t, o, err := reduction("ireducescatter", dtype, op)
		if err != nil {
			return nil, err
		}
		return g.StartReduceScatterPart(buffer(window, w.bytes), buffer(recv, own), shard, offset, t, o, 1)
	})
}

//export goCollAllreduce
func goCollAllreduce(
	handle C.int64_t, send, recv unsafe.Pointer, bytes C.size_t, dtype, op C.int, r *C.struct_coll_request,
) C.nccl_result {
	return post("iallreduce", handle, r, func(g *group.Group) (*group.Work, error) {
		t, o, err := reduction("iallreduce", dtype, op)
		if err != nil {
			return nil, err
		}
		return g.StartAllreduce(buffer(send, bytes), buffer(recv, bytes), t, o, 1)
	})
}

// NCCL's numbers of types and reductions are ours.
var (
	_ = [1]struct{}{}[reduce.E5M2-11]
	_ = [1]struct{}{}[reduce.Min-3]
)

// callersDrive reports whether the thread that tests an operation also does the operation's work.
func callersDrive(s config.Settings) bool {
	return s.Driver == "caller" || s.Driver == "auto" && runtime.NumCPU() < 4
}

//export goCollHelp
func goCollHelp(handle C.int64_t) {
	g, err := collGroups.get(int64(handle))
	if err != nil {
		return
	}
	func() {
		defer guard(&err)
		g.Help()
	}()
	if err != nil { // nothing of the group can be trusted any more
		say(C.NCCL_LOG_WARN, err.Error())
		_ = g.Abort(err.Error())
	}
}

//export goCollAbort
func goCollAbort(handle C.int64_t) {
	if g, err := collGroups.get(int64(handle)); err == nil {
		_ = g.Abort("NCCL freed a buffer that an operation in flight uses, as it does when a communicator is aborted")
		g.pending.Wait()
	}
}

// leaving is how long closeColl waits for the other ranks. Their operations are as good as done
// when ours are; one that is merely elsewhere must not hold NCCL up.
const leaving = 2 * time.Second

//export goCollClose
func goCollClose(handle C.int64_t) C.nccl_result {
	return verdict("closeColl", func() error {
		g, err := collGroups.take(int64(handle))
		if err != nil {
			return argument("%v", err)
		}
		err = g.CloseWithin(leaving)
		g.pending.Wait()
		if err != nil { // freed all the same: after a failure, or when other ranks do not close in time
			say(C.NCCL_LOG_INFO, "closeColl: "+err.Error())
		}
		return nil
	})
}
