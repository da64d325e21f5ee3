package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"0": {0}, "7": {7}, "5,0,1:10,3": {5, 0, 1, 10, 3}, "1:1": {1}, "1:100": {1, 10, 100}, "3:299": {3, 30},
		"4611686018427387904:9223372036854775807": {1 << 62},
	} {
		got, err := Sizes(text, 10)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.00 KiB", 3 << 19: "1.50 MiB", 1 << 40: "1.00 TiB",
	} {
		require.Equal(t, want, BytesText(n))
	}
}
