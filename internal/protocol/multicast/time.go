package multicast

import "time"

// Time is a moment: how long after some fixed one. It must not go backwards.
type Time = time.Duration
