package gpudirect

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const driverEnv = "GPUDIRECT_TEST_DRIVER"

func TestKindOf(t *testing.T) {
	x := new(int)
	assert.Equal(t, Host, KindOf(unsafe.Pointer(x)))
	require.NoError(t, CPUAccessible(unsafe.Pointer(x), unsafe.Sizeof(*x)))
	if os.Getenv(driverEnv) != "" {
		device := unsafe.Add(unsafe.Pointer(nil), 1<<62)
		assert.Equal(t, CUDA, KindOf(device))
		assert.Equal(t, Pinned, KindOf(unsafe.Add(unsafe.Pointer(nil), 1<<61)))
		assert.Equal(t, Managed, KindOf(unsafe.Add(unsafe.Pointer(nil), 1<<60)))
		assert.True(t, Pinned.OnHost())
		assert.False(t, Managed.OnHost())
		require.EqualError(t, CPUAccessible(device, 2),
			"cuda memory at 0x4000000000000000, 2 bytes: the CPU cannot read it: bad address")
		return
	}
	// Again, in a process that has a driver loaded, which KindOf never does itself.
	lib := filepath.Join(t.TempDir(), "libcuda.so.1")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", lib,
		"testdata/fakecuda.c").CombinedOutput()
	require.NoError(t, err, string(out))
	again := exec.Command(os.Args[0], "-test.run=TestKindOf")
	again.Env = append(os.Environ(), driverEnv+"=1", "LD_PRELOAD="+lib)
	out, err = again.CombinedOutput()
	require.NoError(t, err, string(out))
}

func BenchmarkKindOf(b *testing.B) {
	x := new(int)
	for b.Loop() {
		KindOf(unsafe.Pointer(x))
	}
}
