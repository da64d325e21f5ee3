package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// lender is a fabric with a device that reads shards by itself, when it likes.
type lender struct {
	narrow
	lent, returned uint64
}

func (f *lender) Multicast(r *fabric.Run) int {
	f.lent += uint64(r.Count)
	r.Lent = f.lent
	return r.Count
}

func (f *lender) Returned(lent uint64) bool { return f.returned >= lent }

// lending has rank 0 of two broadcast 64 bytes over f, and the other say that it has them all.
func lending(t *testing.T, f *lender) (*Gather, *Work) {
	f.messages = map[int][]wire.Control{}
	g := NewGather(GatherConfig{
		Core: multicast.Config{Rank: 0, Size: 2, Chunk: 4, Chains: 1, Subgroups: 1, Window: 16, Cutoff: time.Hour}, Fabric: f,
		Job: 1,
	})
	send := make([]byte, 64)
	w, err := g.Submit(GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: 64}, Send: send, Recv: send}, nil)
	require.NoError(t, err)
	f.heard, f.from = []wire.Control{{Kind: wire.Credit, Collective: wire.Broadcast, PSN: 16}}, []int{1}
	g.Work()
	g.Work()
	require.EqualValues(t, 16, f.lent)
	f.heard, f.from = []wire.Control{{Kind: wire.Done, Collective: wire.Broadcast}}, []int{1}
	g.Work()
	return g, w
}

// TestLent: an operation that all ranks have done is the caller's only once the device has read its input.
func TestLent(t *testing.T) {
	f := &lender{}
	g, w := lending(t, f)
	require.False(t, done(w))
	require.False(t, g.Rest(func() {}), "there is something to look at")
	require.Equal(t, 1, g.InFlight())
	f.returned = 15
	require.False(t, g.Work())
	require.False(t, done(w))
	f.returned = 16
	require.True(t, g.Work())
	require.True(t, done(w))
	require.NoError(t, w.Err())
	require.Zero(t, g.InFlight())

	f = &lender{returned: 16}
	_, w = lending(t, f)
	require.True(t, done(w), "it was read before all had it")
}

// TestLentFails: a device that reads nothing more keeps no operation of a group that has failed.
func TestLentFails(t *testing.T) {
	g, w := lending(t, &lender{})
	failure := errors.New("rank 1 died")
	g.Fail(failure)
	g.Work()
	require.True(t, done(w))
	require.ErrorIs(t, w.Err(), failure)
	require.Zero(t, g.InFlight())
}
