package gpudirect

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const deviceEnv = "GPUDIRECT_TEST_DEVICE"

// again runs a test in another process, with a driver made of these files of testdata, or without one.
func again(t *testing.T, test, what string, sources ...string) {
	t.Helper()
	dir := t.TempDir()
	if len(sources) > 0 {
		args := []string{"-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1", "-o", filepath.Join(dir, "libcuda.so.1")}
		out, err := exec.Command("gcc", append(args, sources...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	c := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	c.Env = append(os.Environ(), deviceEnv+"="+what, "LD_LIBRARY_PATH="+dir)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+test)
}

func TestOpen(t *testing.T) {
	switch os.Getenv(deviceEnv) {
	case "":
		t.Run("there is none", func(t *testing.T) { again(t, "TestOpen", "none") })
		t.Run("an old one", func(t *testing.T) { again(t, "TestOpen", "old", "testdata/fakecuda.c") })
		t.Run("no device", func(t *testing.T) {
			t.Setenv("FAKE_NO_DEVICE", "1")
			again(t, "TestOpen", "no device", "testdata/asynccuda.c")
		})
		t.Run("streams that cannot wait", func(t *testing.T) {
			t.Setenv("FAKE_NO_WAIT", "1")
			again(t, "TestOpen", "no wait", "testdata/asynccuda.c")
		})
		t.Run("another device", func(t *testing.T) { again(t, "TestOpen", "other", "testdata/asynccuda.c") })
	case "none":
		if _, err := os.Stat("/dev/nvidiactl"); err == nil {
			t.Log("this machine has a driver")
			return
		}
		for range 2 {
			_, err := Open(0)
			require.ErrorIs(t, err, ErrNoDriver)
			require.ErrorContains(t, err, "libcuda.so.1")
		}
	case "old":
		_, err := Open(0)
		require.ErrorIs(t, err, ErrNoDriver)
		require.ErrorContains(t, err, "the driver has no cuInit: it is older than CUDA 11.7")
	case "no device":
		_, err := Open(0)
		require.ErrorIs(t, err, ErrNoDriver)
		require.ErrorContains(t, err, "cuInit: CUDA_ERROR_NO_DEVICE")
	case "no wait":
		for range 2 {
			_, err := Open(0)
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err,
				"a stream of CUDA device 0 cannot wait for memory, as under WSL and on some virtual GPUs: cuStreamWaitValue32")
		}
	case "other":
		_, err := Open(3)
		require.EqualError(t, err, "cuDevicePrimaryCtxRetain on CUDA device 3: CUDA_ERROR_INVALID_DEVICE (101)")
		d, err := Open(0)
		require.NoError(t, err)
		same, err := Open(0)
		require.NoError(t, err)
		require.Same(t, d, same)
	}
}

func TestDevice(t *testing.T) {
	if os.Getenv(deviceEnv) == "" {
		again(t, "TestDevice", "async", "testdata/asynccuda.c")
		return
	}
	d, err := Open(0)
	require.NoError(t, err)
	host, err := d.Pin(4096)
	require.NoError(t, err)
	device, err := d.Pin(8192) // of this driver's devices the memory is the host's
	require.NoError(t, err)
	at := uintptr(unsafe.Pointer(&device[0]))
	word := (*uint32)(unsafe.Pointer(&device[4096]))
	*word = ^uint32(0) // the number before 0
	out, err := d.NewStream()
	require.NoError(t, err)
	in, err := d.NewStream()
	require.NoError(t, err)
	event, err := d.NewEvent()
	require.NoError(t, err)

	// Every step is late, and each waits for the one before.
	for i := range device[:1000] {
		device[i] = byte(i)
	}
	require.NoError(t, d.CopyOut(host[:1000], at, 1, 1000, out))
	filled := make(chan []byte, 1)
	require.NoError(t, d.Call(out, func() { filled <- append([]byte{}, host[:1000]...) }))
	require.NoError(t, d.Record(event, out))
	require.NoError(t, d.Wait(in, event))
	require.NoError(t, d.Record(event, 0), "a later one changes nothing")
	require.NoError(t, d.WaitWord(in, word, 2))
	require.NoError(t, d.CopyIn(at+2000, host[:1000], 1, 0, in))
	require.NoError(t, d.CopyWithin(at+1000, at+2000, 1000, in))
	arrived := make(chan struct{})
	require.NoError(t, d.Call(in, func() { close(arrived) }))
	require.Equal(t, device[:1000], <-filled)
	for i := range host[:1000] {
		host[i] = byte(3 * i)
	}
	idle, err := d.Idle(in)
	require.NoError(t, err)
	require.False(t, idle)
	_, err = d.Idle(2)
	require.EqualError(t, err, "cuStreamQuery on CUDA device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
	for value := range uint32(3) {
		select {
		case <-arrived:
			t.Fatal("it did not wait for the word")
		default:
		}
		atomic.StoreUint32(word, value)
	}
	<-arrived
	require.Equal(t, host[:1000], device[1000:2000])
	require.Equal(t, host[:1000], device[2000:3000])

	yes, err := d.Capturing(out)
	require.NoError(t, err)
	require.False(t, yes)
	yes, err = d.Capturing(1)
	require.NoError(t, err)
	require.True(t, yes)
	systest.Eventually(t, func() bool {
		idle, err := d.Idle(in)
		return err == nil && idle
	})
	require.NoError(t, d.CloseStream(out))
	require.NoError(t, d.CloseStream(in))
	require.NoError(t, d.Unpin(host))
	require.NoError(t, d.Unpin(device))
}

// TestRows copies a matrix out and in, by one call or row by row.
func TestRows(t *testing.T) {
	if os.Getenv(deviceEnv) == "" {
		again(t, "TestRows", "one call", "testdata/asynccuda.c")
		t.Setenv("FAKE_NO_ROWS", "1")
		again(t, "TestRows", "row by row", "testdata/asynccuda.c")
		return
	}
	d, err := Open(0)
	require.NoError(t, err)
	const rows, row, pitch = 3, 100, 250
	host, err := d.Pin(rows * row)
	require.NoError(t, err)
	device, err := d.Pin(2 * rows * pitch) // of this driver's devices the memory is the host's
	require.NoError(t, err)
	for i := range rows * pitch {
		device[i] = byte(i)
	}
	at := uintptr(unsafe.Pointer(&device[0]))
	stream, err := d.NewStream()
	require.NoError(t, err)
	require.NoError(t, d.CopyOut(host, at, rows, pitch, stream))
	require.NoError(t, d.CopyIn(at+rows*pitch, host, rows, pitch, stream))
	done := make(chan struct{})
	require.NoError(t, d.Call(stream, func() { close(done) }))
	<-done
	for i := range rows {
		require.Equal(t, device[i*pitch:][:row], host[i*row:][:row])
		require.Equal(t, device[i*pitch:][:row], device[(rows+i)*pitch:][:row])
		require.Equal(t, make([]byte, pitch-row), device[(rows+i)*pitch+row:][:pitch-row], "nothing between rows")
	}
}

// BenchmarkCall says what a call of the driver costs a process beside the driver itself: one that has a Go
// function called, which is the dearest, and one that queues.
func BenchmarkCall(b *testing.B) {
	if os.Getenv(deviceEnv) == "" {
		b.Skip("needs a driver: GPUDIRECT_TEST_DEVICE=x, and libcuda.so.1 in LD_LIBRARY_PATH")
	}
	d, err := Open(0)
	require.NoError(b, err)
	stream, err := d.NewStream()
	require.NoError(b, err)
	event, err := d.NewEvent()
	require.NoError(b, err)
	b.Run("Call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d.Call(stream, func() {}) != nil {
				b.Fatal()
			}
		}
	})
	b.Run("Wait", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d.Wait(stream, event) != nil {
				b.Fatal()
			}
		}
	})
}
