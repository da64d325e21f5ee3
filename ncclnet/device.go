package main

/*
#include "mcast.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

func init() {
	group.OpenDevice = func(ordinal int) (staging.Card, error) {
		d, err := gpudirect.Open(ordinal)
		if errors.Is(err, gpudirect.ErrNoDriver) || errors.Is(err, gpudirect.ErrUnsupported) {
			err = fmt.Errorf("%w: %w", fabric.ErrUnavailable, err)
		}
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// startDevice begins an operation on device memory and hands out its handle.
func startDevice(
	handle C.int64_t, at *C.struct_mcast_stream, out *C.int64_t, e *C.char, n C.size_t,
	f func(*group.Group, group.DeviceAt) (*group.DeviceWork, error),
) C.int {
	err := func() (err error) {
		defer guard(&err)
		if out == nil || at == nil {
			return argument("work and at must not be NULL")
		}
		if uint64(at.size) != uint64(unsafe.Sizeof(*at)) {
			return argument("at->size is %d; it must be sizeof(struct mcast_stream), %d", uint64(at.size), unsafe.Sizeof(*at))
		}
		if at.timeout_ms < 0 {
			return argument("at->timeout_ms is %d; allowed are 0, which is no limit, and milliseconds", int64(at.timeout_ms))
		}
		g, err := groups.get(int64(handle))
		if err != nil {
			return err
		}
		limit := min(int64(at.timeout_ms), math.MaxInt64/int64(time.Millisecond))
		w, err := f(g, group.DeviceAt{
			Device: int(at.device), Stream: uintptr(at.stream), Limit: time.Duration(limit) * time.Millisecond,
		})
		if err != nil {
			return deviceError(err)
		}
		*out = C.int64_t(works.add(w))
		return nil
	}()
	return fail(err, e, n)
}

// deviceError gives errors of internal/staging the kind that they have here.
func deviceError(err error) error {
	switch {
	case errors.Is(err, staging.ErrClosed):
		return fmt.Errorf("%w: %w", errClosed, err)
	case errors.Is(err, staging.ErrCapturing), errors.Is(err, staging.ErrCapturingWait):
		return argument("%v", err)
	}
	return err
}

// stretch is device memory of so many bytes a rank.
func stretch(name string, p C.uint64_t, bytes C.size_t, ranks int) (uintptr, error) {
	const most = 1 << 46
	switch {
	case uint64(bytes) > most/uint64(ranks):
		return 0, argument("%s: %d shards of %d bytes are too many", name, ranks, uint64(bytes))
	case p == 0 && bytes > 0:
		return 0, argument("%s is 0 but should be the address of %d bytes", name, uint64(bytes)*uint64(ranks))
	}
	return uintptr(p), nil
}

//export goDeviceAllgather
func goDeviceAllgather(
	handle C.int64_t, at *C.struct_mcast_stream, send, recv C.uint64_t, bytes C.size_t, work *C.int64_t, e *C.char,
	n C.size_t,
) C.int {
	return startDevice(handle, at, work, e, n, func(g *group.Group, at group.DeviceAt) (*group.DeviceWork, error) {
		s, err := stretch("mcast_device_allgather: send", send, bytes, 1)
		if err != nil {
			return nil, err
		}
		r, err := stretch("mcast_device_allgather: recv", recv, bytes, g.Size())
		if err != nil {
			return nil, err
		}
		return g.StartDeviceAllgather(at, s, r, int(bytes))
	})
}

//export goDeviceBroadcast
func goDeviceBroadcast(
	handle C.int64_t, at *C.struct_mcast_stream, buf C.uint64_t, bytes C.size_t, root C.int, work *C.int64_t, e *C.char,
	n C.size_t,
) C.int {
	return startDevice(handle, at, work, e, n, func(g *group.Group, at group.DeviceAt) (*group.DeviceWork, error) {
		b, err := stretch("mcast_device_broadcast: buf", buf, bytes, 1)
		if err != nil {
			return nil, err
		}
		return g.StartDeviceBroadcast(at, b, int(bytes), int(root))
	})
}

//export goDeviceReduceScatter
func goDeviceReduceScatter(
	handle C.int64_t, at *C.struct_mcast_stream, send, recv C.uint64_t, count C.size_t, dtype, op C.int, factor C.double,
	work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return startDevice(handle, at, work, e, n, func(g *group.Group, at group.DeviceAt) (*group.DeviceWork, error) {
		t, o, err := reduction("mcast_device_reduce_scatter", dtype, op)
		if err != nil {
			return nil, err
		}
		r, err := stretch("mcast_device_reduce_scatter: recv", recv, count, t.Size())
		if err != nil {
			return nil, err
		}
		bytes := int(count) * t.Size()
		s, err := stretch("mcast_device_reduce_scatter: send", send, C.size_t(bytes), g.Size())
		if err != nil {
			return nil, err
		}
		return g.StartDeviceReduceScatter(at, s, r, bytes, t, o, float64(factor))
	})
}

//export goDeviceReduce
func goDeviceReduce(
	handle C.int64_t, at *C.struct_mcast_stream, send, recv C.uint64_t, count C.size_t, dtype, op C.int, factor C.double,
	root C.int, work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return startDevice(handle, at, work, e, n, func(g *group.Group, at group.DeviceAt) (*group.DeviceWork, error) {
		t, o, err := reduction("mcast_device_reduce", dtype, op)
		if err != nil {
			return nil, err
		}
		s, err := stretch("mcast_device_reduce: send", send, count, t.Size())
		if err != nil {
			return nil, err
		}
		var r uintptr
		if int(root) == g.Rank() {
			if r, err = stretch("mcast_device_reduce: recv", recv, count, t.Size()); err != nil {
				return nil, err
			}
		}
		return g.StartDeviceReduce(at, s, r, int(count)*t.Size(), t, o, float64(factor), int(root))
	})
}

//export goDeviceAllreduce
func goDeviceAllreduce(
	handle C.int64_t, at *C.struct_mcast_stream, send, recv C.uint64_t, count C.size_t, dtype, op C.int, factor C.double,
	work *C.int64_t, e *C.char, n C.size_t,
) C.int {
	return startDevice(handle, at, work, e, n, func(g *group.Group, at group.DeviceAt) (*group.DeviceWork, error) {
		t, o, err := reduction("mcast_device_allreduce", dtype, op)
		if err != nil {
			return nil, err
		}
		s, err := stretch("mcast_device_allreduce: send", send, count, t.Size())
		if err != nil {
			return nil, err
		}
		r, err := stretch("mcast_device_allreduce: recv", recv, count, t.Size())
		if err != nil {
			return nil, err
		}
		return g.StartDeviceAllreduce(at, s, r, int(count)*t.Size(), t, o, float64(factor))
	})
}

//export goDeviceFollow
func goDeviceFollow(work C.int64_t, stream C.uint64_t, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		w, err := works.get(int64(work))
		if err != nil {
			return err
		}
		d, ok := w.(*group.DeviceWork)
		if !ok {
			return argument("mcast_device_follow: work %d is not on device memory", int64(work))
		}
		if err := d.Follow(uintptr(stream)); err != nil {
			return deviceError(err)
		}
		return d.Err()
	}()
	return fail(err, e, n)
}
