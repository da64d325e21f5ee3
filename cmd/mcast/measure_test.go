package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// alone is a group of one rank, as far as a meter needs one before it times.
type alone struct{ contender }

func (alone) Barrier() error { return nil }

func (alone) Allgather(send, recv []byte) error {
	copy(recv, send)
	return nil
}

// TestCopiesReadMemory: the kernel has one page of zeros for all that was never written, and who copies that
// reads no memory.
func TestCopiesReadMemory(t *testing.T) {
	const n = 1 << 20
	p := place{group: alone{}, ranks: 1}
	b := &bench{dtype: reduce.F32, op: reduce.Sum}
	gather, cast, scatter, all := gatherOf(p, n, false), broadcastOf(p, n, 1), scatterOf(p, n, b), allreduceOf(p, n, b)
	for _, c := range []struct {
		load load
		from []byte
	}{{gather, gather.send}, {cast, cast.scratch}, {scatter, scatter.send}, {all, all.send}} {
		_, _, err := (&meter{place: p, bench: b}).memcpy(c.load)
		require.NoError(t, err)
		require.NotZero(t, c.from[n-1], "%T", c.load)
	}
}
