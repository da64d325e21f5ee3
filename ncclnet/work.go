package main

/*
#include "mcast.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// pending is what can be waited for: an operation, or a group that is being left.
type pending interface {
	Done() <-chan struct{}
	WaitUntil(deadline time.Time) error
}

var works = handles[pending]{what: "work"}

// start begins an operation of a group, which has its place in orders, and hands out its handle.
func start(
	handle C.int64_t, out *C.int64_t, e *C.char, n C.size_t, orders staging.Orders,
	f func(*group.Group) (*group.Work, error),
) C.int {
	return begin(handle, out, e, n, func(g *group.Group) (pending, error) {
		return g.InTurn(orders, func() (*group.Work, error) { return f(g) })
	})
}

// begin begins an operation of a group at once, and hands out its handle.
func begin(handle C.int64_t, out *C.int64_t, e *C.char, n C.size_t, f func(*group.Group) (pending, error)) C.int {
	err := func() (err error) {
		defer guard(&err)
		if out == nil {
			return argument("work must not be NULL")
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		w, err := f(g)
		if err == nil {
			*out = C.int64_t(works.add(w))
		}
		return err
	}()
	return fail(err, e, n)
}

//export goAllgather
func goAllgather(
	handle C.int64_t, send, recv unsafe.Pointer, bytes C.size_t, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return start(handle, work, e, n, staging.Gather, func(g *group.Group) (*group.Work, error) {
		s, err := memory("mcast_allgather: send", send, bytes)
		if err != nil {
			return nil, err
		}
		r, err := shards("mcast_allgather: recv", recv, bytes, g.Size())
		if err != nil {
			return nil, err
		}
		return g.StartAllgather(s, r)
	})
}

// shards is memory for one shard a rank.
func shards(name string, p unsafe.Pointer, bytes C.size_t, ranks int) ([]byte, error) {
	if uint64(bytes) > math.MaxInt64/uint64(ranks) {
		return nil, argument("%s: %d shards of %d bytes are too many", name, ranks, uint64(bytes))
	}
	return memory(name, p, bytes*C.size_t(ranks))
}

//export goBroadcast
func goBroadcast(
	handle C.int64_t, buf unsafe.Pointer, bytes C.size_t, root C.int, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return start(handle, work, e, n, staging.Gather, func(g *group.Group) (*group.Work, error) {
		b, err := memory("mcast_broadcast: buf", buf, bytes)
		if err != nil {
			return nil, err
		}
		return g.StartBroadcast(b, int(root))
	})
}

//export goReduceScatter
func goReduceScatter(
	handle C.int64_t, send, recv unsafe.Pointer, count C.size_t, dtype, op C.int, factor C.double, work *C.int64_t,
	e *C.char, n C.size_t,
) C.int {
	return start(handle, work, e, n, staging.Reduce, func(g *group.Group) (*group.Work, error) {
		t, o, err := reduction("mcast_reduce_scatter", dtype, op)
		if err != nil {
			return nil, err
		}
		r, err := shards("mcast_reduce_scatter: recv", recv, count, t.Size())
		if err != nil {
			return nil, err
		}
		s, err := shards("mcast_reduce_scatter: send", send, C.size_t(len(r)), g.Size())
		if err != nil {
			return nil, err
		}
		return g.StartReduceScatter(s, r, t, o, float64(factor))
	})
}

//export goReduce
func goReduce(
	handle C.int64_t, send, recv unsafe.Pointer, count C.size_t, dtype, op C.int, factor C.double, root C.int,
	work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return start(handle, work, e, n, staging.Reduce, func(g *group.Group) (*group.Work, error) {
		t, o, err := reduction("mcast_reduce", dtype, op)
		if err != nil {
			return nil, err
		}
		s, err := shards("mcast_reduce: send", send, count, t.Size())
		if err != nil {
			return nil, err
		}
		var r []byte
		if int(root) == g.Rank() {
			if r, err = shards("mcast_reduce: recv", recv, count, t.Size()); err != nil {
				return nil, err
			}
		}
		return g.StartReduce(s, r, t, o, float64(factor), int(root))
	})
}

// reduction checks the numbers of an element type and of a reduction.
func reduction(name string, dtype, op C.int) (reduce.Type, reduce.Op, error) {
	if dtype < 0 || dtype > math.MaxUint8 || !reduce.Type(dtype).Valid() {
		return 0, 0, argument("%s: unknown dtype %d; mcast.h lists those allowed (MCAST_I8 ...)", name, int(dtype))
	}
	if op < 0 || op > math.MaxUint8 || !reduce.Op(op).Valid() {
		return 0, 0, argument("%s: unknown op %d; mcast.h lists those allowed (MCAST_SUM ...)", name, int(op))
	}
	return reduce.Type(dtype), reduce.Op(op), nil
}

//export goAllreduce
func goAllreduce(
	handle C.int64_t, send, recv unsafe.Pointer, count C.size_t, dtype, op C.int, factor C.double, work *C.int64_t,
	e *C.char, n C.size_t,
) C.int {
	return start(handle, work, e, n, staging.Gather|staging.Reduce, func(g *group.Group) (*group.Work, error) {
		t, o, err := reduction("mcast_allreduce", dtype, op)
		if err != nil {
			return nil, err
		}
		s, err := shards("mcast_allreduce: send", send, count, t.Size())
		if err != nil {
			return nil, err
		}
		r, err := shards("mcast_allreduce: recv", recv, count, t.Size())
		if err != nil {
			return nil, err
		}
		return g.StartAllreduce(s, r, t, o, float64(factor))
	})
}

//export goBarrier
func goBarrier(handle C.int64_t, work *C.int64_t, e *C.char, n C.size_t) C.int {
	return start(handle, work, e, n, staging.Gather, (*group.Group).StartBarrier)
}

//export goTest
func goTest(work C.int64_t, done *C.int, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if done == nil {
			return argument("mcast_test: done must not be NULL")
		}
		w, err := works.get(int64(work))
		if err != nil {
			return err
		}
		*done = 0
		select {
		case <-w.Done():
			*done = 1
		default:
		}
		return nil
	}()
	return fail(err, e, n)
}

//export goWait
func goWait(work, timeoutMS C.int64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		w, err := works.get(int64(work))
		if err != nil {
			return err
		}
		err = w.WaitUntil(deadlineIn(timeoutMS))
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("not done within %d ms; the operation goes on: %w", timeoutMS, err)
		}
		return err
	}()
	return fail(err, e, n)
}

//export goAccount
func goAccount(work C.int64_t, ns *C.uint64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if ns == nil {
			return argument("mcast_account: ns must not be NULL")
		}
		w, err := works.get(int64(work))
		if err != nil {
			return err
		}
		kept, ok := w.(interface{ Account() overlap.Account })
		if !ok {
			return argument("mcast_account: none is kept of this work")
		}
		select {
		case <-w.Done():
		default:
			return argument("mcast_account: the work is not done")
		}
		account := kept.Account()
		to := unsafe.Slice(ns, len(account))
		for phase, lasted := range account {
			to[phase] = C.uint64_t(lasted)
		}
		return nil
	}()
	return fail(err, e, n)
}

// deadlineIn is when so many milliseconds are over; below 0: never.
func deadlineIn(ms C.int64_t) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(min(int64(ms), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
}

//export goForget
func goForget(work C.int64_t) C.int {
	w, err := works.take(int64(work))
	if d, ok := w.(*group.DeviceWork); ok {
		d.Release()
	}
	return fail(err, nil, 0)
}
