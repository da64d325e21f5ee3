package streamcopy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopy tries every alignment and length around the sizes of its steps.
func TestCopy(t *testing.T) {
	src, dst := make([]byte, 1200), make([]byte, 1200)
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	for to := range 66 {
		for from := range 3 {
			for _, n := range []int{0, 1, 31, 62, 63, 64, 65, 127, 128, 129, 190, 192, 255, 256, 257, 511, 640, 1001} {
				clear(dst)
				Copy(dst[to:][:n], src[from:][:n])
				require.Equal(t, src[from:][:n], dst[to:][:n], "to %d from %d, %d bytes", to, from, n)
				for i, b := range dst {
					if b != 0 && (i < to || i >= to+n) {
						require.Fail(t, "wrote elsewhere", "at %d: to %d from %d, %d bytes", i, to, from, n)
					}
				}
			}
		}
	}
}
