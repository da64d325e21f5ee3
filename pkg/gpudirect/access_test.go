package gpudirect

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCPUAccessible(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 3*int(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	require.NoError(t, unix.Mprotect(mem[2*page:], unix.PROT_NONE)) // as the driver reserves addresses of a GPU's memory
	p := unsafe.Pointer(unsafe.SliceData(mem))

	require.NoError(t, CPUAccessible(p, 2*page))
	require.NoError(t, CPUAccessible(unsafe.Add(p, 2*page), 0))
	for _, bad := range [][2]uintptr{{0, 3 * page}, {2 * page, 1}, {page, page + 1}, {2*page - 1, 2}} {
		err := CPUAccessible(unsafe.Add(p, bad[0]), bad[1])
		require.ErrorIs(t, err, unix.EFAULT)
		require.ErrorContains(t, err, "host memory at 0x")
		require.ErrorContains(t, err, "the CPU cannot read it")
	}
	require.ErrorIs(t, CPUAccessible(nil, 1), unix.EFAULT)
}
