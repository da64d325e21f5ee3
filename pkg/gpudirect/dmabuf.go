package gpudirect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapping is a DMA-BUF that the CPU sees.
//
// System calls that copy work on it. Calls that pin pages instead, such as
// MSG_ZEROCOPY and io_uring's fixed buffers, fail with EFAULT where the exporter
// maps it as VM_PFNMAP, as the NVIDIA driver does, and udmabuf in Linux 6.12.
type Mapping struct {
	mem  []byte // whole pages
	data []byte
	fd   int // a duplicate of the caller's, for Begin and End
}

// Access says what the CPU is about to do, as DMA_BUF_SYNC_* of linux/dma-buf.h.
type Access uint64

// The accesses.
const (
	Read      Access = 1
	Write     Access = 2
	ReadWrite Access = Read | Write
)

// MapDMABuf maps size bytes at offset of the DMA-BUF behind fd, for reading and
// writing. fd stays the caller's and may be closed. NCCL passes such
// descriptors to regMrDmaBuf (net v8 to v12). Linux 5.3 or newer.
//
// The error says why it cannot be: fd is no DMA-BUF or not open, the range is
// empty or goes past the end, or its exporter does not let the CPU map it. It
// wraps the errno. NVIDIA's driver lets the CPU map the memory of integrated
// GPUs only (kernel-open/nvidia/nv-dmabuf.c, can_mmap; ENOTSUPP before that).
func MapDMABuf(fd int, offset uint64, size int) (*Mapping, error) {
	if err := requireDMABuf(fd); err != nil {
		return nil, fmt.Errorf("gpudirect: map DMA-BUF: %w", err)
	}
	m, err := mapShared(fd, offset, size)
	if err != nil {
		return nil, fmt.Errorf("gpudirect: map DMA-BUF: %w", err)
	}
	return m, nil
}

// Bytes is the memory, valid until Close.
func (m *Mapping) Bytes() []byte { return m.data }

// Begin tells the exporter that the CPU is about to access the memory, so that
// it brings caches and ordering into agreement with the device.
func (m *Mapping) Begin(a Access) error { return m.sync(uint64(a)) }

// End says that the access that Begin announced is over. What the CPU wrote is
// the device's only then.
func (m *Mapping) End(a Access) error {
	const end = 4 // DMA_BUF_SYNC_END
	return m.sync(uint64(a) | end)
}

// sync is DMA_BUF_IOCTL_SYNC, which a signal may interrupt.
func (m *Mapping) sync(flags uint64) error {
	const dmaBufIoctlSync = 0x40086200 // _IOW('b', 0, struct dma_buf_sync), linux/dma-buf.h
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), dmaBufIoctlSync, uintptr(unsafe.Pointer(&flags)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN:
			continue
		}
		return fmt.Errorf("gpudirect: DMA_BUF_IOCTL_SYNC: %w", errno)
	}
}

// Close unmaps the memory. Nobody may use Bytes any more.
func (m *Mapping) Close() error {
	err := unix.Munmap(m.mem)
	m.mem, m.data = nil, nil
	return errors.Join(err, unix.Close(m.fd))
}

// requireDMABuf asks in which file system the descriptor's file lies: all
// DMA-BUFs have one of their own (since Linux 5.3).
func requireDMABuf(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if fs.Type != unix.DMA_BUF_MAGIC {
		what, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			what = fmt.Sprintf("a file of a file system of type %#x", fs.Type)
		}
		return fmt.Errorf("descriptor %d is not a DMA-BUF but %s", fd, what)
	}
	return nil
}

// mapShared maps part of any file that can be mapped.
func mapShared(fd int, offset uint64, size int) (*Mapping, error) {
	length, err := unix.Seek(fd, 0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("size of descriptor %d: %w", fd, err)
	}
	total := uint64(length) // an offset of a file is not negative
	if size <= 0 || offset > total || uint64(size) > total-offset {
		return nil, fmt.Errorf("%d bytes at offset %d: allowed are 1 byte or more within its %d", size, offset, total)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // it was a descriptor just now
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor %d: %w", fd, err)
	}
	before := offset % uint64(os.Getpagesize())
	// within the file
	mem, err := unix.Mmap(own, int64(offset-before), int(before)+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(own)
		return nil, fmt.Errorf("%d bytes at offset %d: %s: %w", size, offset, mmapReason(err), err)
	}
	return &Mapping{mem: mem, data: mem[before:], fd: own}, nil
}

// mmapReason says what an error of mmap means for a range that lies within the
// file: drivers/dma-buf/dma-buf.c of Linux, and exporters.
func mmapReason(err error) string {
	const kernelENOTSUPP = unix.Errno(524) // the kernel's own, which should not but does get out
	switch {
	case errors.Is(err, unix.EACCES):
		return "the descriptor was opened for reading only, a receive must write"
	case errors.Is(err, unix.ENOMEM):
		return "this process may not map more memory (ulimit -v, vm.max_map_count)"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOTSUP),
		errors.Is(err, unix.ENOTTY),
		errors.Is(err, unix.ENXIO), errors.Is(err, unix.EPERM), errors.Is(err, kernelENOTSUPP):
		return "its exporter does not let the CPU map it"
	}
	return "mmap failed"
}
