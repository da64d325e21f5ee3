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
// need nothing for it: the cache tells who uses what, and is where a fabric that
// pins pages comes in.
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
		s, _, err := current(0)
		if err != nil {
			return err
		}
		kind := gpudirect.Host
		switch {
		case typ == C.NCCL_PTR_HOST:
		case typ == C.NCCL_PTR_CUDA && s.GPUMemory == "coherent":
			kind = gpudirect.CUDA
		default:
			return argument("memory of type %d is not allowed with MCAST_GPU_MEMORY=%s: want %d, host memory", int(typ), s.GPUMemory, int(C.NCCL_PTR_HOST))
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

//export goRegisterDMABuf
func goRegisterDMABuf(data unsafe.Pointer, size C.size_t, offset C.uint64_t, fd C.int, out *C.struct_region) C.nccl_result {
	return verdict("regMrDmaBuf", func() error {
		s, _, err := current(0)
		if err != nil {
			return err
		}
		if s.GPUMemory != "dmabuf" {
			return argument("a DMA-BUF is not allowed with MCAST_GPU_MEMORY=%s: want dmabuf", s.GPUMemory)
		}
		m, err := gpudirect.MapDMABuf(int(fd), uint64(offset), int(size)) //nolint:gosec // checked there
		if err != nil {
			return err
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
			return r.mapping.Close()
		case r.memory != nil:
			return registered.Release(r.memory)
		}
		return nil
	})
}
