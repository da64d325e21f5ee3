package gpudirect

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CPUAccessible returns an error if the CPU cannot read the first or the last of
// size bytes at p: a load or store would end the process. The kernel tries it,
// by copying a byte from there.
//
// The CPU can read memory of cudaMalloc where CPU and GPU share page tables and caches: on Grace
// Hopper and its successors, over NVLink-C2C (CUDA Programming Guide, "Unified Memory",
// hardware-coherent systems). Memory of cuMemCreate is the CPU's only where cuMemSetAccess gave it
// access.
//
// The CPU's own accesses to such memory, and to the host's, need no flush
// before the GPU may read what was received: NCCL flushes because a NIC writes
// past the CPU by PCIe (ncclTopoNeedFlush, src/graph/paths.cc, v2.30.7: never
// from compute capability 9.0 on, unless forced or the NIC is a DataDirect
// one). If the CPU moves the bytes, a plugin answers iflush with a full fence
// (atomic_thread_fence(memory_order_seq_cst) in C) and a request that is done.
func CPUAccessible(p unsafe.Pointer, size uintptr) error {
	if size == 0 {
		return nil
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("gpudirect: pipe: %w", err)
	}
	defer func() { _ = errors.Join(unix.Close(pipe[0]), unix.Close(pipe[1])) }()
	for _, at := range []uintptr{0, size - 1} {
		// Not unix.Write: a race detector would look at the byte first.
		if _, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(pipe[1]), uintptr(p)+at, 1); errno != 0 {
			return fmt.Errorf("%v memory at %#x, %d bytes: the CPU cannot read it: %w", KindOf(p), uintptr(p), size, errno)
		}
	}
	return nil
}
