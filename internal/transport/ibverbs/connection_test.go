package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExponent: seven waits take no longer than asked for, as far as devices have such, and half of it at least.
func TestExponent(t *testing.T) {
	for _, within := range []time.Duration{100 * time.Microsecond, time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		all := tries * leastWait << exponent(within)
		require.LessOrEqual(t, all, within)
		require.Greater(t, 2*all, within)
	}
	require.Equal(t, 1, exponent(0))
	require.Equal(t, 31, exponent(1000*time.Hour))
}
