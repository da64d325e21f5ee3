package gpudirect

import (
	"fmt"
	"unsafe"
)

// CPUAccessible returns an error if the CPU cannot read and write the memory at
// p itself. coherent says that it can do so with device memory too, which only
// the operator knows: on Grace Hopper and its successors CPU and GPU share page
// tables and caches over NVLink-C2C (CUDA Programming Guide, "Unified Memory",
// hardware-coherent systems). It holds for memory of cudaMalloc; memory of
// cuMemCreate is the CPU's only where cuMemSetAccess gave it access.
//
// The CPU's own accesses to such memory, and to the host's, need no flush
// before the GPU may read what was received: NCCL flushes because a NIC writes
// past the CPU by PCIe (ncclTopoNeedFlush, src/graph/paths.cc, v2.30.7: never
// from compute capability 9.0 on, unless forced or the NIC is a DataDirect
// one). A plugin whose bytes come by the CPU answers iflush with a full fence
// (atomic_thread_fence(memory_order_seq_cst) in C) and a request that is done.
func CPUAccessible(p unsafe.Pointer, coherent bool) error {
	if k := KindOf(p); k != Host && !coherent {
		return fmt.Errorf("%v memory at %p: the CPU cannot read it; register host memory, or say that this machine's is coherent", k, p)
	}
	return nil
}
