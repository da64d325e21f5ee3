package sys

import "time"

// NextBeat returns how long it is until the next whole multiple of a period, by the clock on the wall.
// What a process does for each of its groups now and then it does at the same moments for all: a
// wake-up of an idle process costs more than what is done then.
func NextBeat(period time.Duration) time.Duration {
	now := time.Now().Round(0) // without the monotonic clock, which Truncate does not know
	return now.Truncate(period).Add(period).Sub(now)
}
