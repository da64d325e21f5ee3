package owntime

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWait: a look counts what has passed since the one before, and a period at most.
func TestWait(t *testing.T) {
	const period = time.Second
	var w Wait
	now := time.Unix(1000, 0)
	require.Zero(t, w.Elapsed(now, period))
	now = now.Add(period / 2)
	require.Equal(t, period/2, w.Elapsed(now, period))
	now = now.Add(time.Hour) // in which this process did not run
	require.Equal(t, period*3/2, w.Elapsed(now, period))
	require.Equal(t, period*3/2, w.Elapsed(now.Add(-time.Minute), period), "nor does it count what never was")
	w.Over()
	require.Zero(t, w.Elapsed(now, period))
}

// TestTimer: it is over when its limit is, and no sooner where the process did not run.
func TestTimer(t *testing.T) {
	const limit = 8 * time.Second
	for name, absent := range map[string]time.Duration{"runs": 0, "is stopped": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var over atomic.Bool
				timer := AfterFunc(limit, func() { over.Store(true) })
				timer.mu.Lock() // the next look comes so late
				timer.wait.counted = timer.wait.counted.Add(-absent)
				timer.mu.Unlock()
				time.Sleep(limit - time.Second/2) //nolint:forbidigo // in a bubble
				synctest.Wait()
				require.False(t, over.Load())
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble
				synctest.Wait()
				require.True(t, over.Load())
			})
		})
	}
}

func TestTimerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := AfterFunc(time.Second, func() { t.Error("it was stopped") })
		time.Sleep(time.Second / 2) //nolint:forbidigo // in a bubble
		timer.Stop()
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
	})
}

func TestWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("too late")
		start := time.Now()
		ctx, cancel := WithTimeout(t.Context(), 3*time.Second, why)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, 3*time.Second, time.Since(start)) //nolint:forbidigo // in a bubble
		require.Equal(t, why, context.Cause(ctx))
		ctx, cancel = WithTimeout(t.Context(), 3*time.Second, why)
		cancel()
		require.Equal(t, context.Canceled, context.Cause(ctx))
	})
}

// TestReader: a silence is over when its limit is.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		r := Reader{Conn: near}
		start := time.Now()
		r.Within(8 * time.Second)
		_, err := r.Read(make([]byte, 8))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 8*time.Second, time.Since(start)) //nolint:forbidigo // in a bubble

		go func() {
			time.Sleep(7 * time.Second) //nolint:forbidigo // in a bubble
			_, _ = far.Write([]byte{1})
		}()
		r.Within(8 * time.Second)
		n, err := r.Read(make([]byte, 8))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// absent is the connection of a process that does not run for a while, once: the deadline of its read passes
// meanwhile, and what comes then is seen by the next read.
type absent struct {
	net.Conn
	read, at int // reads so far, and the read during which the process is absent
	lasts    time.Duration
}

func (c *absent) Read(b []byte) (int, error) {
	if c.read++; c.read == c.at {
		time.Sleep(c.lasts) //nolint:forbidigo // in a bubble
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(b)
}

// TestReaderDoesNotRun: what has come while this process did not run is read, whichever look it missed, the last one
// too.
func TestReaderDoesNotRun(t *testing.T) {
	const limit = 8 * time.Second
	for at := 1; at <= looks; at++ {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			go func() {
				// in a bubble: it comes just before this process runs again
				time.Sleep(time.Duration(at-1)*limit/looks + time.Hour) //nolint:forbidigo
				_, _ = far.Write([]byte{1})
			}()
			r := Reader{Conn: &absent{Conn: near, at: at, lasts: time.Hour}}
			r.Within(limit)
			n, err := r.Read(make([]byte, 8))
			require.NoError(t, err, "look %d", at)
			require.Equal(t, 1, n)
		})
	}
}

// TestReaderOfTrickle: who says a little at a time has as long again as who says nothing, and no more.
func TestReaderOfTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		var sender sync.WaitGroup
		sender.Go(func() {
			var err error
			for err == nil {
				time.Sleep(3 * time.Second / 4) //nolint:forbidigo // in a bubble
				_, err = far.Write([]byte{1})
			}
		})
		r := Reader{Conn: near}
		start := time.Now()
		r.Within(8 * time.Second)
		var err error
		for err == nil {
			_, err = r.Read(make([]byte, 1))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), 17*time.Second) //nolint:forbidigo // in a bubble
		require.NoError(t, near.Close())
		sender.Wait()
	})
}
