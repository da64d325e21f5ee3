package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Every way writes all of the destination and nothing beside it; one that left
// something out would be no limit.
func TestWaysWriteAll(t *testing.T) {
	before := reduce.Active()
	t.Cleanup(func() { require.NoError(t, reduce.Use(before)) })
	const n, guard = 3 * 4096, 4096
	srcs := [][]byte{make([]byte, n), make([]byte, n), make([]byte, n)}
	for _, l := range reduce.Levels() {
		require.NoError(t, reduce.Use(l))
		for _, w := range limits() {
			whole := touched(guard + n + guard)
			w.run(whole[guard:guard+n], srcs)
			require.Equal(t, touched(guard), whole[:guard], "%v, %s: before", l, w.name)
			require.Equal(t, make([]byte, n), whole[guard:guard+n], "%v, %s", l, w.name)
			require.Equal(t, touched(guard), whole[guard+n:], "%v, %s: behind", l, w.name)
		}
	}
}
