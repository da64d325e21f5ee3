// Package gpudirect is for programs that move the bytes of buffers which may be a GPU's, such as
// network plugins of NCCL and libraries under a framework:
//
//   - KindOf tells where memory lies, the host's or a GPU's, in any process, with a driver or without;
//   - CPUAccessible tells whether a load from a pointer would end the process;
//   - Cache keeps memory registered, by a Registrar, with the fabric or driver that moves it, so that the next
//     registration of the same buffer is free;
//   - MapDMABuf gives the CPU the memory behind a DMA-BUF, such as NCCL hands to plugins;
//   - Device copies between a GPU and pinned memory in the order of streams, by the driver, which Open
//     loads and nothing else.
//
// It needs neither CUDA's headers nor its libraries.
package gpudirect

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

// Of the CUDA driver API: CUresult cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr).
typedef int (*get_attribute)(void *, int, unsigned long long);

static get_attribute lookup;

static int read_adds(struct dl_phdr_info *info, size_t size, void *adds)
{
	*(unsigned long long *)adds = info->dlpi_adds;
	return 1; // the first object will do
}

// libraries_loaded counts the libraries that this process has ever loaded.
static unsigned long long libraries_loaded(void)
{
	unsigned long long adds = 0;
	dl_iterate_phdr(read_adds, &adds);
	return adds;
}

// find_driver looks for the driver in this process: only one that has loaded
// it itself can hold such pointers. Looking takes microseconds among hundreds
// of libraries, so it is done again only when one was added.
static get_attribute find_driver(void)
{
	static unsigned long long looked_at;
	unsigned long long now = libraries_loaded();
	get_attribute f;
	void *lib;

	if (now == __atomic_load_n(&looked_at, __ATOMIC_RELAXED))
		return NULL;
	lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	f = lib == NULL ? NULL : (get_attribute)dlsym(lib, "cuPointerGetAttribute");
	if (lib != NULL)
		dlclose(lib);
	if (f == NULL)
		__atomic_store_n(&looked_at, now, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&lookup, f, __ATOMIC_RELEASE);
	return f;
}

// attribute asks the driver about p, and returns 0 if it is not in this process
// or does not know p.
static unsigned long long attribute(uintptr_t p, int which)
{
	unsigned long long value = 0; // an attribute is of 1, 4 or 8 bytes
	get_attribute f = __atomic_load_n(&lookup, __ATOMIC_ACQUIRE);

	if (f == NULL && (f = find_driver()) == NULL)
		return 0;
	return f(&value, which, (unsigned long long)p) == 0 ? value : 0;
}
*/
import "C"

import "unsafe"

// Kind is where memory lies.
type Kind int

// The kinds.
const (
	Host    Kind = iota // the host's, which no driver knows
	Pinned              // the host's, pinned for GPUs: allocated so, or registered
	CUDA                // device memory of a GPU
	Managed             // it moves between the host and GPUs (cudaMallocManaged)
)

var kinds = [...]string{Host: "host", Pinned: "pinned", CUDA: "cuda", Managed: "managed"}

// String returns the kind's name.
func (k Kind) String() string { return kinds[k] }

// OnHost reports whether it is memory of the host, which the CPU can always read and write.
func (k Kind) OnHost() bool { return k == Host || k == Pinned }

// Of CUpointer_attribute and CUmemorytype of the CUDA driver API.
const (
	cuMemoryType = 2
	cuIsManaged  = 8

	cuMemoryTypeDevice = 2
)

// KindOf tells where the memory at p lies. Memory that no driver claims is the host's.
func KindOf(p unsafe.Pointer) Kind {
	at := C.uintptr_t(uintptr(p))
	switch kind := C.attribute(at, cuMemoryType) & 0xFFFFFFFF; {
	case kind == 0:
		return Host
	case C.attribute(at, cuIsManaged)&0xFF != 0:
		return Managed
	case kind == cuMemoryTypeDevice:
		return CUDA
	}
	return Pinned
}
