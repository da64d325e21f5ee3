package gpudirect

// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Register pins memory of the host that is there already, such as a window that processes share, so that the
// device reads and writes it by itself. It lasts until Unregister, which comes before the memory is unmapped.
func (d *Device) Register(memory []byte) error {
	return d.register(uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)))
}

func (d *Device) register(addr, size uintptr) error {
	if err := d.failed("cuMemHostRegister", C.gpud_register(d.context, C.uintptr_t(addr), C.size_t(size))); err != nil {
		return fmt.Errorf("pin %d bytes of the host at %#x: %w", size, addr, err)
	}
	d.counts.registered.Add(1)
	return nil
}

// Unregister unpins what Register has pinned. It may wait for the device.
func (d *Device) Unregister(memory []byte) error {
	return d.unregister(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

func (d *Device) unregister(addr uintptr) error {
	return d.failed("cuMemHostUnregister", C.gpud_unregister(d.context, C.uintptr_t(addr)))
}

// ExportDMABuf returns a descriptor of device memory that the drivers of other devices can import, such as a
// network card's for RDMA. The caller closes it; it keeps the memory. The range is of whole pages of the host
// and lies within one allocation of the device.
func (d *Device) ExportDMABuf(device, size uintptr) (fd int, err error) {
	var got C.int
	var why *C.char
	result := C.gpud_export(d.context, C.int(d.ordinal), C.uintptr_t(device), C.size_t(size), &got, &why)
	if why != nil {
		return -1, fmt.Errorf("%w: CUDA device %d exports no DMA-BUF: %s; it takes CUDA 11.7, Linux 5.12, the open kernel "+
			"modules and a GPU from Turing on",
			ErrUnsupported, d.ordinal, C.GoString(why))
	}
	if err := d.failed("cuMemGetHandleForAddressRange", result); err != nil {
		return -1, fmt.Errorf("a DMA-BUF of %d bytes of device memory at %#x: %w", size, device, err)
	}
	d.counts.exported.Add(1)
	return int(got), nil
}

// Pinner is a Registrar by the CUDA driver: it pins memory of the host for the device, and exports memory of the
// device as DMA-BUFs, with the descriptor (an int) as the token. Managed memory is refused, since it moves. Pinned
// memory, which was allocated so or pinned by others, needs nothing. Memory that a Pinner has pinned stays Host to it,
// although KindOf then says Pinned.
type Pinner struct {
	Device *Device
	// Invalidated says that the program calls Cache.Invalidate before it unmaps or frees memory. Then memory without
	// a reference may stay registered.
	Invalidated bool
}

// pinned is the address of what a Pinner has pinned.
type pinned uintptr

// Register pins or exports.
func (p Pinner) Register(addr, size uintptr, kind Kind) (token any, err error) {
	switch kind {
	case Host:
		return pinned(addr), p.Device.register(addr, size)
	case Pinned:
		return nil, nil
	case CUDA:
		return p.Device.ExportDMABuf(addr, size)
	}
	return nil,
		fmt.Errorf("%w: %v memory cannot be registered with CUDA device %d; host and cuda memory of that device can",
			ErrUnsupported, kind, p.Device.ordinal)
}

// Deregister gives back what Register has returned.
func (p Pinner) Deregister(token any) error {
	switch t := token.(type) {
	case pinned:
		return p.Device.unregister(uintptr(t))
	case int:
		return unix.Close(t)
	}
	return nil
}

// MayOutlive is true for memory that is pinned without the Pinner, and for other memory if Invalidated is set.
func (p Pinner) MayOutlive(kind Kind) bool { return kind == Pinned || p.Invalidated }
