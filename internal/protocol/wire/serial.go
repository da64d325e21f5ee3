package wire

// Before reports whether the number a comes before b, in serial arithmetic (RFC 1982): numbers of
// operations and slots wrap around, and those compared are less than 2^31 apart.
func Before(a, b uint32) bool { return int32(a-b) < 0 }

// Later returns the number that comes after the other.
func Later(a, b uint32) uint32 {
	if Before(a, b) {
		return b
	}
	return a
}
