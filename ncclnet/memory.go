package main

/*
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/ncclnet/p2p"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// registered is the memory that NCCL has registered. Sockets and shared memory
// need nothing for it, with a CUDA driver or without: the CPU moves the bytes,
// and NCCL has pinned its buffers of the host itself. So the cache only tells
// who uses what. What RDMA devices move is in a cache for each.
var registered = gpudirect.NewCache(gpudirect.Unpinned{}, gpudirect.Limits{Count: 1024, Bytes: 64 << 30})

// registration is what stands behind a struct region: one of these.
type registration struct {
	memory  *gpudirect.Registration
	cache   *gpudirect.Cache   // of memory
	mapping *gpudirect.Mapping // of a DMA-BUF
	moved   *p2p.Memory        // a DMA-BUF of an RDMA device
}

// pins registers memory with an RDMA device.
type pins struct{ device *p2p.Device }

func (p pins) Register(addr, size uintptr, _ gpudirect.Kind) (any, error) {
	return p.device.Register(addr, size)
}

func (p pins) Deregister(token any) error { return token.(*p2p.Memory).Close() }

// MayOutlive is false: nobody says when memory is unmapped.
func (p pins) MayOutlive(gpudirect.Kind) bool { return false }

var pinned = struct {
	sync.Mutex
	by map[*p2p.Device]*gpudirect.Cache
}{by: map[*p2p.Device]*gpudirect.Cache{}}

// pinnedBy returns the cache of a device's registrations.
func pinnedBy(d *p2p.Device) *gpudirect.Cache {
	pinned.Lock()
	defer pinned.Unlock()
	c := pinned.by[d]
	if c == nil {
		c = gpudirect.NewCache(pins{d}, gpudirect.Limits{})
		pinned.by[d] = c
	}
	return c
}

// setKeys copies the keys of registered memory into its region.
func setKeys(out *C.struct_region, m *p2p.Memory) {
	local, remote := m.Keys()
	out.local, out.remote = C.uint32_t(local), C.uint32_t(remote)
}

var registrations = handles[*registration]{what: "memory registration"}

//export goRegister
func goRegister(data unsafe.Pointer, size C.size_t, typ C.int, out *C.struct_region) C.nccl_result {
	return verdict("regMr", func() error {
		r, kind, err := &registration{cache: registered}, gpudirect.Host, error(nil)
		device := p2p.DeviceAt(out.device)
		switch {
		case device == nil:
			kind, err = kindOf(data, uintptr(size), typ)
		case typ == C.NCCL_PTR_CUDA:
			r.cache, kind = pinnedBy(device), gpudirect.CUDA
		case typ == C.NCCL_PTR_HOST:
			r.cache = pinnedBy(device)
		default:
			err = argument("memory of type %d is not allowed: want %d, host memory, or %d, a GPU's", int(typ),
				int(C.NCCL_PTR_HOST), int(C.NCCL_PTR_CUDA))
		}
		if err != nil {
			return err
		}
		if size > 0 { // a buffer without bytes is a buffer, too
			if r.memory, err = r.cache.Acquire(uintptr(data), uintptr(size), kind); err != nil {
				return err
			}
			if device != nil {
				setKeys(out, r.memory.Token.(*p2p.Memory))
			}
		}
		out.handle = C.int64_t(registrations.add(r))
		return nil
	})
}

// kindOf returns what NCCL says that memory is, if it is of any use.
func kindOf(data unsafe.Pointer, size uintptr, typ C.int) (gpudirect.Kind, error) {
	setting := gpuMemory()
	switch {
	case typ == C.NCCL_PTR_HOST:
		return gpudirect.Host, nil
	case typ == C.NCCL_PTR_CUDA && setting == "coherent":
		if err := gpudirect.CPUAccessible(data, size); err != nil {
			return 0, argument("MCAST_GPU_MEMORY=coherent is not so on this machine: %v; host is always right", err)
		}
		return gpudirect.CUDA, nil
	case typ == C.NCCL_PTR_CUDA && setting == "dmabuf":
		return 0, argument("GPU memory without a DMA-BUF is not allowed with MCAST_GPU_MEMORY=dmabuf, and NCCL gave none: " +
			"the GPU, its driver or NCCL_DMABUF_ENABLE=0 rule it out; use MCAST_GPU_MEMORY=host")
	}
	return 0, argument("memory of type %d is not allowed with MCAST_GPU_MEMORY=%s: want %d, host memory", int(typ),
		setting, int(C.NCCL_PTR_HOST))
}

//export goRegisterDMABuf
func goRegisterDMABuf(
	data unsafe.Pointer, size C.size_t, offset C.uint64_t, fd C.int, out *C.struct_region,
) C.nccl_result {
	return verdict("regMrDmaBuf", func() error {
		if device := p2p.DeviceAt(out.device); device != nil {
			m, err := device.RegisterDMABuf(int(fd), uint64(offset), uintptr(size), uintptr(data))
			if err != nil {
				return err
			}
			setKeys(out, m)
			out.handle = C.int64_t(registrations.add(&registration{moved: m}))
			return nil
		}
		if setting := gpuMemory(); setting != "dmabuf" {
			return argument("a DMA-BUF is not allowed with MCAST_GPU_MEMORY=%s: want dmabuf", setting)
		}
		m, err := gpudirect.MapDMABuf(int(fd), uint64(offset), int(size)) // checked there
		if err != nil {
			return err
		}
		// One access for as long as the registration lasts. It tells the exporter, and is enough
		// where CPU and GPU see each other's writes without being told of each: a machine that
		// needs caches flushed between them must stay with MCAST_GPU_MEMORY=host.
		if err := m.Begin(gpudirect.ReadWrite); err != nil {
			return errors.Join(err, m.Close())
		}
		out.shift = C.ptrdiff_t(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes()))) - uintptr(data))
		out.handle = C.int64_t(registrations.add(&registration{mapping: m}))
		return nil
	})
}

//export goDeregister
func goDeregister(handle C.int64_t) C.nccl_result {
	return verdict("deregMr", func() (err error) {
		r, err := registrations.take(int64(handle))
		switch {
		case errors.Is(err, errClosed):
			return argument("%v", err)
		case r.mapping != nil:
			return errors.Join(r.mapping.End(gpudirect.ReadWrite), r.mapping.Close())
		case r.moved != nil:
			return r.moved.Close()
		case r.memory != nil:
			return r.cache.Release(r.memory)
		}
		return nil
	})
}
