package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// TestPull reads memory of another rank, which is this process as well, and refuses another process.
func TestPull(t *testing.T) {
	w := regions(t, small(2))
	from := []byte("bytes that lie in memory of a rank")
	to := make([]byte, len(from))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(from)))
	require.NoError(t, w[1].Messages().Pull(0, at, to))
	require.Equal(t, from, to)
	require.Error(t, w[1].Messages().Pull(0, 1, to), "nothing is there")

	w[0].Messages().Withdraw()
	require.ErrorIs(t, w[1].Messages().Pull(0, at, to), fabric.ErrWithdrawn)

	names := w[0].lay.places().names
	word64(w[0].mem, names+line+16).Add(1)
	require.ErrorIs(t, w[0].Messages().Pull(1, at, to), errOtherProcess)
	word64(w[0].mem, names+line).Store(1 << 40)
	require.ErrorIs(t, w[0].Messages().Pull(1, at, to), errOtherProcess)
}
