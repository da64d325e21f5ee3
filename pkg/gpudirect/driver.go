package gpudirect

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// What Open and others return.
var (
	// ErrNoDriver: there is no driver, or an old one.
	ErrNoDriver = errors.New("gpudirect: no CUDA driver")
	// ErrUnsupported: the driver, the device or the machine cannot do it.
	ErrUnsupported = errors.New("gpudirect: not supported here")
)

// Device is a GPU of this process, as the driver numbers them (CUDA_VISIBLE_DEVICES). It works in the
// device's primary context, which is the one that frameworks such as PyTorch use. Streams and events
// are CUstream and CUevent, and stream 0 is the legacy default stream. All methods may be called at
// once, by any goroutine. What queues returns without waiting for the device, unless the driver's queue is
// full: it has room for some thousand commands.
type Device struct {
	ordinal int
	context C.uintptr_t
}

var (
	devicesLock sync.Mutex
	devices     = map[int]*Device{}
)

// Open returns a device. It loads the driver, libcuda.so.1, if the process has not: nothing else of this
// package does. If the device's streams cannot wait for memory, the error is ErrUnsupported.
func Open(ordinal int) (*Device, error) {
	devicesLock.Lock()
	defer devicesLock.Unlock()
	if d := devices[ordinal]; d != nil {
		return d, nil
	}
	const room = 512
	why := (*C.char)(C.malloc(room))
	defer C.free(unsafe.Pointer(why))
	if C.gpud_open(why, room) != 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(why))
	}
	d := &Device{ordinal: ordinal}
	if err := d.failed("cuDevicePrimaryCtxRetain", C.gpud_device(C.int(ordinal), &d.context)); err != nil {
		return nil, err
	}
	if err := d.tryWait(); err != nil {
		return nil, err
	}
	devices[ordinal] = d // kept to the end of the process, as is the context that frameworks use
	return d, nil
}

// tryWait has a stream wait for a word that is there. No attribute of a device tells whether that works: WSL
// and some virtual GPUs refuse it.
func (d *Device) tryWait() error {
	word, err := d.Pin(4)
	if err != nil {
		return err
	}
	stream, err := d.NewStream()
	if err != nil {
		return errors.Join(err, d.Unpin(word))
	}
	result := C.gpud_wait_word(d.context, C.uintptr_t(stream), (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(word))), 0)
	if result == 0 {
		// The word stays: to free it the driver may wait for what else is queued.
		return d.CloseStream(stream)
	}
	err = d.failed("cuStreamWaitValue32", result)
	if result == C.GPUD_NOT_SUPPORTED {
		err = fmt.Errorf("%w: a stream of CUDA device %d cannot wait for memory, as under WSL and on some virtual GPUs: %w",
			ErrUnsupported, d.ordinal, err)
	}
	return errors.Join(err, d.CloseStream(stream), d.Unpin(word))
}

// Pin returns new memory of the host that the device can read and write by itself.
func (d *Device) Pin(size int) ([]byte, error) {
	var memory unsafe.Pointer
	if err := d.failed("cuMemHostAlloc", C.gpud_pin(d.context, C.size_t(size), &memory)); err != nil {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", size, err)
	}
	return unsafe.Slice((*byte)(memory), size), nil
}

// Unpin frees what Pin has returned. It may wait for the device.
func (d *Device) Unpin(memory []byte) error {
	return d.failed("cuMemFreeHost", C.gpud_unpin(d.context, unsafe.Pointer(unsafe.SliceData(memory))))
}

// NewStream returns a stream that waits for no other one by itself.
func (d *Device) NewStream() (uintptr, error) {
	var stream C.uintptr_t
	err := d.failed("cuStreamCreate", C.gpud_stream(d.context, &stream))
	return uintptr(stream), err
}

// CloseStream gives a stream up. Work that is queued on it is still done.
func (d *Device) CloseStream(stream uintptr) error {
	return d.failed("cuStreamDestroy", C.gpud_stream_destroy(d.context, C.uintptr_t(stream)))
}

// NewEvent returns an event that nothing was recorded in yet. It lasts as long as the process.
func (d *Device) NewEvent() (uintptr, error) {
	var event C.uintptr_t
	err := d.failed("cuEventCreate", C.gpud_event(d.context, &event))
	return uintptr(event), err
}

// Idle reports whether all work on a stream is done. Its error may come from an earlier command; then the device does
// nothing more in this process.
func (d *Device) Idle(stream uintptr) (bool, error) {
	result := C.gpud_idle(d.context, C.uintptr_t(stream))
	if result == C.GPUD_NOT_READY {
		return false, nil
	}
	return result == 0, d.failed("cuStreamQuery", result)
}

// Capturing reports whether work that is queued on a stream is recorded into a CUDA graph.
func (d *Device) Capturing(stream uintptr) (bool, error) {
	var yes C.int
	err := d.failed("cuStreamIsCapturing", C.gpud_capturing(d.context, C.uintptr_t(stream), &yes))
	return yes != 0, err
}

// Record has an event stand for the work that is queued on a stream so far.
func (d *Device) Record(event, stream uintptr) error {
	return d.failed("cuEventRecord", C.gpud_record(d.context, C.uintptr_t(event), C.uintptr_t(stream)))
}

// Wait has work that is queued on a stream from now on wait for the work last recorded in an event. A later Record in
// the same event changes nothing.
func (d *Device) Wait(stream, event uintptr) error {
	return d.failed("cuStreamWaitEvent", C.gpud_wait(d.context, C.uintptr_t(stream), C.uintptr_t(event)))
}

// WaitWord has a stream wait until a word in pinned memory is value, or has passed it: they are compared
// modulo 2^32.
func (d *Device) WaitWord(stream uintptr, word *uint32, value uint32) error {
	return d.failed("cuStreamWaitValue32",
		C.gpud_wait_word(d.context, C.uintptr_t(stream), (*C.uint32_t)(word), C.uint32_t(value)))
}

// CopyOut queues a copy of rows of equal length from the device, where they are pitch bytes apart, to pinned
// memory, where one lies behind another.
func (d *Device) CopyOut(host []byte, device uintptr, rows, pitch int, stream uintptr) error {
	return d.failed("copy to the host",
		C.gpud_copy_out(d.context, unsafe.Pointer(unsafe.SliceData(host)), C.uintptr_t(device),
			C.size_t(len(host)/rows), C.size_t(rows), C.size_t(pitch), C.uintptr_t(stream)))
}

// CopyIn queues a copy of such rows to the device.
func (d *Device) CopyIn(device uintptr, host []byte, rows, pitch int, stream uintptr) error {
	return d.failed("copy from the host",
		C.gpud_copy_in(d.context, C.uintptr_t(device), unsafe.Pointer(unsafe.SliceData(host)),
			C.size_t(len(host)/rows), C.size_t(rows), C.size_t(pitch), C.uintptr_t(stream)))
}

// CopyWithin queues a copy of so many bytes from one address of the device to another.
func (d *Device) CopyWithin(to, from uintptr, size int, stream uintptr) error {
	return d.failed("cuMemcpyDtoDAsync", C.gpud_copy_within(
		d.context, C.uintptr_t(to), C.uintptr_t(from), C.size_t(size), C.uintptr_t(stream)))
}

// Call has f called, by a thread of the driver, once all that was queued on a stream before is done. f
// must not block, nor call the driver. After an error of the device it is never called.
func (d *Device) Call(stream uintptr, f func()) error {
	h := cgo.NewHandle(f)
	err := d.failed("cuLaunchHostFunc", C.gpud_call(d.context, C.uintptr_t(stream), C.uintptr_t(h)))
	if err != nil {
		h.Delete()
	}
	return err
}

//export goReached
func goReached(handle C.uintptr_t) {
	h := cgo.Handle(handle)
	f := h.Value().(func())
	h.Delete()
	f()
}

// failed returns what a call of the driver ended with, or nil.
func (d *Device) failed(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return fmt.Errorf("%s on CUDA device %d: %s (%d)", call, d.ordinal, C.GoString(C.gpud_error(result)), int(result))
}
