package main

/*
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// registered is the memory that NCCL has registered. Sockets and shared memory
// need nothing for it, with a CUDA driver or without: the CPU moves the bytes,
// and NCCL has pinned its buffers of the host itself. So the cache only tells
// who uses what. A fabric that has devices move them, as RDMA does, takes a
// registrar of its own here; gpudirect.Pinner gives it the DMA-BUFs of device
// memory, and pins what a GPU is to copy.
var registered = gpudirect.NewCache(gpudirect.Unpinned{}, gpudirect.Limits{Count: 1024, Bytes: 64 << 30})

// registration is what stands behind a struct region: one of these.
type registration struct {
	memory  *gpudirect.Registration
	mapping *gpudirect.Mapping // of a DMA-BUF
}

var registrations = handles[*registration]{what: "memory registration"}

//export goRegister
func goRegister(data unsafe.Pointer, size C.size_t, typ C.int, out *C.struct_region) C.nccl_result {
	return verdict("regMr", func() error {
		kind, err := kindOf(data, uintptr(size), typ)
		if err != nil {
			return err
		}
		r := &registration{}
		if size > 0 { // a buffer without bytes is a buffer, too
			if r.memory, err = registered.Acquire(uintptr(data), uintptr(size), kind); err != nil {
				return err
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
	return 0, argument("memory of type %d is not allowed with MCAST_GPU_MEMORY=%s: want %d, host memory", int(typ), setting, int(C.NCCL_PTR_HOST))
}

//export goRegisterDMABuf
func goRegisterDMABuf(data unsafe.Pointer, size C.size_t, offset C.uint64_t, fd C.int, out *C.struct_region) C.nccl_result {
	return verdict("regMrDmaBuf", func() error {
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
		case r.memory != nil:
			return registered.Release(r.memory)
		}
		return nil
	})
}
