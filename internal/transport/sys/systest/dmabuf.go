package systest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Memfd returns a file in memory of so many bytes. It may not shrink, which
// udmabuf wants.
func Memfd(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("systest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	require.NoError(t, err)
	return fd
}

// Udmabuf makes a DMA-BUF of a memfd's pages, linux/udmabuf.h. It skips the
// test where the kernel has no such device or the user may not open it.
func Udmabuf(t *testing.T, memory int, size uint64) int {
	t.Helper()
	device := openUdmabuf(t)
	defer func() { _ = device.Close() }()
	create := struct {
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memory), flags: 1 /* UDMABUF_FLAGS_CLOEXEC */, size: size}
	const udmabufCreate = 0x40187542 // _IOW('u', 0x42, struct udmabuf_create)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), udmabufCreate, uintptr(unsafe.Pointer(&create)))
	require.Zero(t, errno, "UDMABUF_CREATE: %v", errno)
	t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return int(fd)
}

func openUdmabuf(t *testing.T) *os.File {
	t.Helper()
	device, err := os.OpenFile("/dev/udmabuf", os.O_RDWR, 0)
	if err == nil {
		return device
	}
	if !os.IsNotExist(err) {
		t.Skipf("%v (the test needs root or the group kvm)", err)
	}
	// A container has no node for it even where the kernel has the device.
	misc, err := os.ReadFile("/proc/misc")
	require.NoError(t, err)
	for line := range strings.Lines(string(misc)) {
		minor, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "udmabuf" {
			continue
		}
		n, err := strconv.ParseUint(minor, 10, 32)
		require.NoError(t, err)
		node := filepath.Join(t.TempDir(), "udmabuf")
		if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(10, uint32(n)))); err != nil {
			t.Skipf("the kernel has udmabuf, but its node cannot be made: %v", err)
		}
		device, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			t.Skipf("the kernel has udmabuf, but its node cannot be opened: %v", err)
		}
		return device
	}
	t.Skip("this kernel has no udmabuf (CONFIG_UDMABUF): no DMA-BUF to map")
	return nil
}
