package fabrics

// Warning is something that makes a group slow, and what can be done.
type Warning struct{ Cause, Text string }

// NoMulticast is the cause found at join or later.
const NoMulticast = "no multicast"
