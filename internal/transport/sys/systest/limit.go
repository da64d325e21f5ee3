package systest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limit bounds every wait of a test for something that has to happen. Only an event that never happens
// reaches the limit: a machine under load takes seconds for milliseconds of a quiet one. No test says
// how fast anything is; benchmarks do.
const Limit = 5 * time.Minute

// Deadline returns the end of a wait that begins now.
func Deadline() time.Time { return time.Now().Add(Limit) }

// Context returns a context for a wait that begins now.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until something is so.
func Eventually(t testing.TB, is func() bool, message ...any) {
	t.Helper()
	for end := Deadline(); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.Fail(t, "it has not happened", message...)
		}
	}
}

// Receive waits for a value, or for the channel to be closed.
func Receive[T any](t testing.TB, from <-chan T, message ...any) T {
	t.Helper()
	end := time.NewTimer(Limit)
	defer end.Stop()
	select {
	case v := <-from:
		return v
	case <-end.C:
		require.Fail(t, "nothing came", message...)
		panic("unreachable")
	}
}

// Pause lets time pass where a test is as true after much more time: a rank is late, a peer is slow, a
// limit is over. To wait for the work of others, use Eventually or Receive.
func Pause(d time.Duration) { time.Sleep(d) }

// Later calls f after a while, in a goroutine of its own, where a test is as true if that comes at
// once or much later: mostly something waits for it by then.
func Later(d time.Duration, f func()) { time.AfterFunc(d, f) }

// AtLeast wants f to take so long. Load only adds to that.
func AtLeast(t testing.TB, least time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.GreaterOrEqual(t, time.Since(start), least)
}

// Ending returns a context that ends after a while, for a test of the effects of its end.
func Ending(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Longer calls f with longer and longer times, up to Limit, until it is satisfied. It is for a test of
// an error at the end of a time that depends on earlier events: on a busy machine the shorter times
// may be over too early.
func Longer(first time.Duration, f func(d time.Duration) bool) {
	for d := first; d <= Limit && !f(d); d *= 4 {
	}
}

// Nothing wants nothing to come from a channel for a while. It may overlook something on a slow
// machine, and never fails without a reason.
func Nothing[T any](t testing.TB, from <-chan T, d time.Duration, message ...any) {
	t.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	select {
	case <-from:
		require.Fail(t, "something came", message...)
	case <-end.C:
	}
}
