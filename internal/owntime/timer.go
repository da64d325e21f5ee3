package owntime

import (
	"context"
	"sync"
	"time"
)

// Timer calls a function once, when this process has run for a limit.
type Timer struct {
	limit time.Duration
	f     func()

	mu      sync.Mutex
	wait    Wait
	t       *time.Timer
	stopped bool
}

// AfterFunc is time.AfterFunc in own time. Stop ends it.
func AfterFunc(limit time.Duration, f func()) *Timer {
	t := &Timer{limit: limit, f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wait.Elapsed(time.Now(), 0)
	t.t = time.AfterFunc(min(limit, periodOf(limit)), t.look)
	return t
}

func (t *Timer) look() {
	t.mu.Lock()
	if t.stopped {
		t.mu.Unlock()
		return
	}
	period := periodOf(t.limit)
	left := t.limit - t.wait.Elapsed(time.Now(), period)
	if left > 0 {
		t.t.Reset(min(left, period))
		t.mu.Unlock()
		return
	}
	t.stopped = true
	t.mu.Unlock()
	t.f()
}

// Stop has the function not be called any more. It may run at this moment.
func (t *Timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.t.Stop()
}

// WithTimeout returns a context that ends, with a cause, when this process has run for a limit. It has no
// deadline, and its Err is context.Canceled then: context.Cause tells why.
func WithTimeout(parent context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	t := AfterFunc(limit, func() { end(cause) })
	return ctx, func() {
		t.Stop()
		end(nil)
	}
}
