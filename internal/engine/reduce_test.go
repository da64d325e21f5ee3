package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// deaf is a path to a switch on which nothing comes and goes.
type deaf struct{ closed bool }

func (*deaf) Add(*wire.Slot, []byte) bool { return true }
func (*deaf) Flush(int) (int, error)      { return 0, nil }
func (*deaf) Receive(int, []byte, int, fabric.SlotSink) (int, error) {
	return 0, nil
}
func (*deaf) Sleep(d time.Duration) { systest.Pause(d) }
func (*deaf) Wake()                 {}
func (*deaf) Stats() fabric.Stats   { return fabric.Stats{} }
func (d *deaf) Close() error {
	d.closed = true
	return errors.New("bad file descriptor")
}

// TestStopWithASwitchThatCannotBeClosed: the switch is lost anyway, and the group goes on.
func TestStopWithASwitchThatCannotBeClosed(t *testing.T) {
	path := new(deaf)
	u := reducescatter.NewSwitchConn(reducescatter.SwitchConnConfig{
		Epoch: 1, Terms: innetwork.Terms{
			Job: 7, Ranks: 2, Stripes: 1, Chunk: 1024, Slots: 8, Cutoff: time.Hour, Reorder: time.Hour,
		},
		Switch: path, Timeout: time.Hour,
	})
	r := NewReduce(ReduceConfig{Size: 2, Route: func() {}})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				r.Work()
				r.Sleep(time.Millisecond)
			}
		}
	}()
	require.NoError(t, r.Do(t.Context(), func() { r.Begin(1, u, nil) }))
	require.NoError(t, r.Do(t.Context(), func() {
		record, left := r.Stop(1)
		assert.NotEmpty(t, record)
		assert.Error(t, left.Close())
	}))
	assert.True(t, path.closed)
	close(stop)
	<-stopped
	require.NoError(t, r.Close())
}

// TestCloseBesideTheFirstOperation: Route has ended when Close returns, or never runs.
func TestCloseBesideTheFirstOperation(t *testing.T) {
	for i := range 20_000 {
		var ready, closed, late atomic.Bool
		r := NewReduce(ReduceConfig{Size: 2, Route: func() { late.Store(closed.Load()) }})
		posted := make(chan struct{})
		go func() {
			defer close(posted)
			ready.Store(true)
			for range i % 200 { // the two meet at another moment each time
				_ = closed.Load()
			}
			_, _ = r.Submit(ReduceOp{}, nil) // in time or not
		}()
		for !ready.Load() {
			runtime.Gosched()
		}
		require.NoError(t, r.Close())
		closed.Store(true)
		<-posted
		r.ended.Wait()
		require.False(t, late.Load(), "Route runs after Close")
	}
}

// TestDoOfTwoCallers: a caller with a context that ends, though it can no longer withdraw, takes nothing from the other
// caller.
func TestDoOfTwoCallers(t *testing.T) {
	r := NewReduce(ReduceConfig{Size: 2})
	begun, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- r.Do(ctx, func() { close(begun); <-finish }) }()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for len(r.orders) == 0 {
			runtime.Gosched()
		}
		r.Work()
	}()
	<-begun
	called := false
	go func() { second <- r.Do(t.Context(), func() { called = true }) }()
	for len(r.orders) == 0 {
		runtime.Gosched()
	}
	cancel()
	systest.Nothing(t, first, 50*time.Millisecond, "the first is being called, and Do has returned")
	close(finish)
	require.NoError(t, <-first)
	<-worked
	r.Work()
	require.NoError(t, <-second)
	require.True(t, called)
}

// TestDoWithdraws: what nobody took up when the context ended is not called, and is in nobody's way.
func TestDoWithdraws(t *testing.T) {
	r := NewReduce(ReduceConfig{Size: 2})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // either there is no place for it, or it is withdrawn
		require.ErrorIs(t, r.Do(gone, func() { require.Fail(t, "called") }), context.Canceled)
	}
	r.Work()
	called := make(chan error, 1)
	go func() { called <- r.Do(t.Context(), func() {}) }()
	for len(r.orders) == 0 {
		runtime.Gosched()
	}
	r.Work()
	require.NoError(t, <-called)
}
