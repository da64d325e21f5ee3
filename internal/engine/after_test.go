package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// nobody is the streams of a group of one, in which nothing comes. Only Wake ends a Sleep.
type nobody struct {
	fabric.Streams
	slept chan struct{} // told of each Sleep, if there is room
	woken chan struct{}
}

func newNobody() *nobody {
	return &nobody{slept: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
}

func (*nobody) Err(int) error       { return nil }
func (*nobody) Stats() fabric.Stats { return fabric.Stats{} }
func (s *nobody) Sleep(time.Duration) {
	select {
	case s.slept <- struct{}{}:
	default:
	}
	<-s.woken
}
func (s *nobody) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// alone is an engine of a group of one, with an operation that waits for after and one behind it.
func alone(t *testing.T, c ReduceConfig, after *Work) (r *Reduce, s *nobody, gated, behind *Work) {
	t.Helper()
	c.Size = 1
	r, s = NewReduce(c), newNobody()
	r.Begin(1, nil, s)
	o := ReduceOp{
		Op: direct.Op{
			Op: collective.Op{Count: 1, Type: reduce.I32, Reduction: reduce.Sum}, Send: []byte{1, 2, 3, 4},
			Recv: make([]byte, 4),
		},
	}
	first := o
	first.After = after
	gated, err := r.Submit(first, nil)
	require.NoError(t, err)
	behind, err = r.Submit(o, nil)
	require.NoError(t, err)
	return r, s, gated, behind
}

// TestReduceAfter: an operation, and the ones posted later, begin once the work before is done.
func TestReduceAfter(t *testing.T) {
	gate := newWork(0, nil)
	r, s, gated, behind := alone(t, ReduceConfig{}, gate)
	for range 3 {
		require.False(t, r.Work())
	}
	require.False(t, done(gated) || done(behind))
	require.Equal(t, 2, r.InFlight())
	s.Wake()
	r.Sleep(time.Hour) // there is nothing to do, so the streams are slept on
	require.Len(t, s.slept, 1)
	<-s.slept
	gate.finish(0, nil)
	r.Sleep(time.Hour) // there is, so they are not
	require.Empty(t, s.slept)
	require.True(t, r.Work())
	for r.Work() {
	}
	require.True(t, done(gated) && done(behind))
	require.NoError(t, gated.Err())
	require.Zero(t, r.InFlight())
}

// TestReduceAfterOverALane: a nudge wakes who drives.
func TestReduceAfterOverALane(t *testing.T) {
	gate := newWork(0, nil)
	r, s, gated, behind := alone(t, ReduceConfig{}, gate)
	l := overlap.NewLane(r)
	l.Posted()
	<-s.slept
	require.False(t, done(gated) || done(behind))
	gate.finish(0, nil)
	l.Nudge()
	<-gated.Done()
	<-behind.Done()
	require.NoError(t, behind.Err())
	l.Close()
}

// TestReduceAfterAFailure: an operation after a failure fails with the group.
func TestReduceAfterAFailure(t *testing.T) {
	gate, why := newWork(0, nil), errors.New("a rank is lost")
	r, _, gated, behind := alone(t, ReduceConfig{}, gate)
	gate.finish(0, why)
	for range 3 {
		require.False(t, r.Work())
	}
	require.False(t, done(gated) || done(behind), "until Fail tells what all ranks are told")
	r.Fail(why)
	r.Work()
	require.ErrorIs(t, gated.Err(), why)
	require.ErrorIs(t, behind.Err(), why)
	require.Zero(t, r.InFlight())
}

// TestWhatWaitsForOthersClaimsNothing: the link is an Allgather's until a reduction begins.
func TestWhatWaitsForOthersClaimsNothing(t *testing.T) {
	now := time.Second
	clock := func() time.Duration { return now }
	link := sendlink.New(new(sendlink.Words), clock)
	gate := newWork(0, nil)
	r, _, gated, _ := alone(t, ReduceConfig{Link: link, Clock: clock}, gate)
	r.Work()
	require.Zero(t, link.Claimed(fabric.Reductions))
	gate.finish(0, nil)
	for r.Work() {
	}
	require.True(t, done(gated))
	require.Positive(t, link.Claimed(fabric.Reductions))
}
