// Package owntime measures how long this process has waited, by the time in which it ran itself.
//
// A process that gets no core, is stopped or sits in a machine that pauses hears nothing meanwhile, even if
// others speak. By the clock on the wall they have been silent for all that time. So a process that waits for a sign of
// life means to look once in a period, and counts no more than a period for each look: the rest is its own absence.
package owntime

import "time"

// Wait is for how long something has been waited for. The zero value has not begun.
type Wait struct {
	counted time.Time // zero: not yet
	own     time.Duration
}

// Elapsed returns for how long this process has waited, as of now, since the first look: of the time since the
// look before, period counts at most.
func (w *Wait) Elapsed(now time.Time, period time.Duration) time.Duration {
	if !w.counted.IsZero() {
		w.own += max(0, min(now.Sub(w.counted), period))
	}
	w.counted = now
	return w.own
}

// Over has the next look be the first one.
func (w *Wait) Over() { *w = Wait{} }

// looks is in how many periods a limit is cut by those of this package that look by themselves.
const looks = 8

// periodOf is how long they wait from look to look.
func periodOf(limit time.Duration) time.Duration { return max(limit/looks, time.Millisecond) }
