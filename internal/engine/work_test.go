package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"
)

func TestOnDone(t *testing.T) {
	why := errors.New("a rank is lost")
	for _, want := range []error{nil, why} {
		order := ""
		w := newWork(0, func() { order += "after " })
		w.OnDone(func(err error) {
			assert.Equal(t, want, err)
			assert.False(t, done(w), "Done is closed behind it")
			assert.Equal(t, want, w.Err())
			order += "hook"
		})
		require.Empty(t, order)
		w.finish(0, want)
		require.Equal(t, "after hook", order)

		w = newWork(0, nil)
		w.finish(0, want)
		called := 0
		w.OnDone(func(err error) {
			assert.Equal(t, want, err)
			called++
		})
		require.Equal(t, 1, called, "it is done already")
	}
}

// TestOnDoneMeetsTheEnd: the hook is called once, whether OnDone or the end comes first.
func TestOnDoneMeetsTheEnd(t *testing.T) {
	for range 2000 {
		var called atomic.Int64
		var both sync.WaitGroup
		w := newWork(0, nil)
		both.Go(func() { w.finish(0, nil) })
		both.Go(func() { w.OnDone(func(error) { called.Inc() }) })
		both.Wait()
		require.EqualValues(t, 1, called.Load())
	}
}

func TestOnDoneOfAJoint(t *testing.T) {
	why := errors.New("they disagree")
	j := NewJoint(2, func(error) error { return why })
	parts := []*Work{newWork(0, j.Ended), newWork(0, j.Ended)}
	var got error
	j.OnDone(func(err error) { got = err })
	j.Posted(parts)
	for _, p := range parts {
		require.NoError(t, got)
		p.end(nil)
	}
	require.Equal(t, why, got)
}

// TestInboxTakesAllOrNone: one call may post more than wait otherwise, if none do.
func TestInboxTakesAllOrNone(t *testing.T) {
	var b inbox[int]
	take := func(n int) []queued[int] { return b.takeWhile(n, func(*int) bool { return true }) }
	many := make([]queued[int], 2*MaxQueued)
	require.NoError(t, b.queue(MaxQueued, many...))
	require.ErrorIs(t, b.queue(MaxQueued, queued[int]{}), ErrBusy)
	require.Len(t, take(2*MaxQueued-1), 2*MaxQueued-1)
	require.ErrorIs(t, b.queue(MaxQueued, many[:MaxQueued]...), ErrBusy)
	require.NoError(t, b.queue(MaxQueued, many[:MaxQueued-1]...))
	require.ErrorIs(t, b.queue(MaxQueued, queued[int]{}), ErrBusy)
	require.Len(t, take(2*MaxQueued), MaxQueued)
	require.Empty(t, take(1))
	require.Equal(t, 3*MaxQueued-1, b.InFlight(), "what was refused does not count, what was taken is not done")
	require.EqualValues(t, 3*MaxQueued-1, b.Posted())
}

// finish ends the work.
func (w *Work) finish(at time.Duration, err error) {
	w.stop(at, err)
	w.end(err)
}
