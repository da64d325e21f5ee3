package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExponent: seven waits take as long as asked for at least, and less than twice that, as far as devices have such.
func TestExponent(t *testing.T) {
	for _, within := range []time.Duration{100 * time.Microsecond, time.Millisecond, time.Second, 30 * time.Second,
		time.Hour} {
		all := tries * leastWait << exponent(within)
		require.GreaterOrEqual(t, all, within)
		require.Less(t, all, 2*within)
	}
	require.Equal(t, 1, exponent(0))
	require.Equal(t, 31, exponent(1000*time.Hour))
}
