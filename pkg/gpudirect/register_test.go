package gpudirect

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRegister(t *testing.T) {
	if os.Getenv(deviceEnv) == "" {
		again(t, "TestRegister", "async", "testdata/asynccuda.c", "testdata/fakecuda.c")
		return
	}
	d, err := Open(0)
	require.NoError(t, err)
	window, err := unix.Mmap(-1, 0, 4*int(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	require.NoError(t, d.Register(window))
	require.ErrorContains(t, d.Register(window), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED")
	require.NoError(t, d.Unregister(window))
	require.ErrorContains(t, d.Unregister(window), "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")
	require.Equal(t, uint64(1), d.Counts().Registered)

	yes, err := d.CanAccess(0)
	require.NoError(t, err)
	require.False(t, yes)
	_, err = d.CanAccess(3)
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_DEVICE")
	require.Equal(t, CUDA, d.KindOf(unsafe.Add(unsafe.Pointer(nil), 1<<62)))
	require.Equal(t, Peer, d.KindOf(unsafe.Add(unsafe.Pointer(nil), 1<<62|3<<40)))
}

// TestPinner has a Cache on the driver. Once each buffer was there, nothing is pinned or exported any more.
func TestPinner(t *testing.T) {
	if os.Getenv(deviceEnv) == "" {
		again(t, "TestPinner", "async", "testdata/asynccuda.c", "testdata/fakecuda.c")
		return
	}
	d, err := Open(0)
	require.NoError(t, err)
	window, err := unix.Mmap(-1, 0, 4*int(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	at, device, ready := uintptr(unsafe.Pointer(&window[0])), uintptr(1<<62), uintptr(1<<61)
	for _, invalidated := range []bool{true, false} {
		before := d.Counts()
		c := NewCache(Pinner{d, invalidated}, Limits{Count: 10, Bytes: 1 << 30})
		round := func() {
			for _, b := range []struct {
				addr, size uintptr
				kind       Kind
			}{{at, 4 * page, Host}, {at + 5, page, Pinned}, {device, page, CUDA}, {device + page, page, CUDA},
				{ready, page, Pinned}} {
				r, err := c.Acquire(b.addr, b.size, b.kind)
				require.NoError(t, err)
				require.NoError(t, c.Release(r))
			}
		}
		round()
		first := d.Counts()
		if !invalidated {
			round()
			require.Equal(t, first.Registered+1, d.Counts().Registered,
				"nobody says when memory goes: nothing outlives its users")
			require.NoError(t, c.Close())
			continue
		}
		for range 10 {
			round()
		}
		require.Equal(t, first, d.Counts(), "the steady state")
		require.Equal(t, before.Registered+1, first.Registered)
		require.Equal(t, before.Exported+2, first.Exported)
		require.NoError(t, c.Close())
		require.ErrorContains(t, d.Unregister(window), "NOT_REGISTERED", "the cache has given it back")
	}
	_, err = Pinner{Device: d}.Register(1<<60, page, Managed)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "managed memory cannot be registered with CUDA device 0")
}

func TestExport(t *testing.T) {
	switch what := os.Getenv(deviceEnv); what {
	case "":
		again(t, "TestExport", "can", "testdata/asynccuda.c")
		again(t, "TestExport", "the driver has no cuMemGetHandleForAddressRange", "testdata/asynccuda.c", "-DWITHOUT_EXPORT")
		t.Setenv("FAKE_NO_DMABUF", "1")
		again(t, "TestExport", "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0", "testdata/asynccuda.c")
	case "can":
		d, err := Open(0)
		require.NoError(t, err)
		fd, err := d.ExportDMABuf(1<<62, 2*page)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		_, err = d.ExportDMABuf(1<<62+1, page)
		require.ErrorContains(t, err, "a DMA-BUF of 4096 bytes of device memory at 0x4000000000000001: "+
			"cuMemGetHandleForAddressRange on CUDA device 0: CUDA_ERROR_INVALID_VALUE")
		require.Equal(t, Counts{Pinned: 1, Exported: 1}, d.Counts())
	default:
		d, err := Open(0)
		require.NoError(t, err)
		_, err = d.ExportDMABuf(1<<62, page)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "CUDA device 0 exports no DMA-BUF: "+what)
	}
}
