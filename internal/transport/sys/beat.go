package sys

import "time"

// NextBeat returns how long it is until the next whole multiple of a period, by the clock on the wall.
// So a process does the periodic work of all its groups at the same moments: a wake-up of an idle
// process costs more than the work itself.
func NextBeat(period time.Duration) time.Duration {
	now := time.Now().Round(0) // without the monotonic clock, which Truncate does not know
	return now.Truncate(period).Add(period).Sub(now)
}
