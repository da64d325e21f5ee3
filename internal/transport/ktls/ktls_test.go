package ktls

import (
	"net"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The kernel takes what linux/tls.h says: 4 bytes of numbers, 8 and 4 of nonces, a key of 32, the number of a record.
func TestLayout(t *testing.T) {
	var d direction
	require.Equal(t, uintptr(56), unsafe.Sizeof(d))
	require.Equal(t, []uintptr{4, 12, 44, 48},
		[]uintptr{unsafe.Offsetof(d.iv), unsafe.Offsetof(d.key), unsafe.Offsetof(d.salt), unsafe.Offsetof(d.number)})
}

// A kernel that cannot seal says what helps, each time that it is asked.
func TestAble(t *testing.T) {
	err := Able()
	require.Equal(t, err, Able())
	if err == nil {
		t.Skip("this kernel can")
	}
	require.ErrorContains(t, err, "modprobe")
}

func TestWrongKeys(t *testing.T) {
	require.ErrorContains(t, set(-1, optionOut, make([]byte, KeySize-1)), "a key of 43 bytes: want 44")
	require.ErrorIs(t, set(-1, optionOut, make([]byte, KeySize)), unix.EBADF)
	a, _ := net.Pipe()
	require.ErrorContains(t, Seal(a, Keys{}), "has no descriptor")
}
