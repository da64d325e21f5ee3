package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// alone is a group of one rank, as far as a meter needs one before it times.
type alone struct{ Contender }

func (alone) Barrier() error { return nil }

func (alone) Allgather(send, recv []byte) error {
	copy(recv, send)
	return nil
}

// early is a group of two ranks in which the other rank is always ahead: all its bytes have come before this rank
// leaves the barrier.
type early struct {
	Contender
	received uint64
}

func (e *early) Barrier() error {
	e.received += 1000
	return nil
}

func (e *early) Moved() (sent, received uint64) { return 0, e.received }

func (e *early) count(c *[numCounters]uint64) { c[counterInjected] = e.received / 100 }

func (*early) Info() monitor.Info { return monitor.Info{} }

func (e *early) Allgather(send, recv []byte) error {
	copy(recv, send)
	copy(recv[len(send):], send)
	return nil
}

// still is a load that moves nothing by itself.
type still struct{}

func (still) fill(int)         {}
func (still) run() error       { return nil }
func (still) check(int) uint64 { return 0 }
func (still) copies() int      { return 64 << 20 }

// TestWhatComesEarlyCounts: ranks leave a barrier at different times; bytes that come before a rank leaves it count for
// the iteration after the barrier.
func TestWhatComesEarlyCounts(t *testing.T) {
	m := &meter{
		participant: participant{group: &early{}, ranks: 2}, bench: &bench{ranks: 2, iters: 3, warmup: 1, dtype: reduce.F32},
	}
	r, err := m.one(500, namedLoad{"allgather", still{}})
	require.NoError(t, err)
	require.InDelta(t, 1000, r.ReceivedBytes, 0)
	require.EqualValues(t, 2*3*10, r.ChunksInjected)
}

// TestCopiesReadMemory: the kernel has one page of zeros for all that was never written, and who copies that
// reads no memory.
func TestCopiesReadMemory(t *testing.T) {
	const n = 1 << 20
	p := participant{group: alone{}, ranks: 1}
	b := &bench{dtype: reduce.F32, op: reduce.Sum}
	gather, cast, scatter, all := gatherOf(p, n, false), broadcastOf(p, n, 1), scatterOf(p, n, b), allreduceOf(p, n, b)
	for _, c := range []struct {
		load load
		from []byte
	}{{gather, gather.send}, {cast, cast.scratch}, {scatter, scatter.send}, {all, all.send}} {
		_, _, err := (&meter{participant: p, bench: b}).memcpy(c.load)
		require.NoError(t, err)
		require.NotZero(t, c.from[n-1], "%T", c.load)
	}
}
