package seal

// numbers are of datagrams. They count on for ever, and a datagram carries the lower 32 bits: extended sequence
// numbers, as IPsec has them (RFC 4303, section 2.2.1). Tags cover all 64, so that a datagram that was recorded and
// comes again when the lower bits have wrapped around has the wrong tag. Two ends must be less than 2^31 numbers apart.
type numbers struct {
	latest uint64 // that is known to be in use
}

// whole returns the number with these lower bits that is closest to the latest: from 2^31 before it to 2^31-1 after it.
func (n *numbers) whole(lower uint32) uint64 {
	return n.latest + uint64(int64(int32(lower-uint32(n.latest))))
}

// Advance says that a number is in use, as found in a datagram that was opened or sealed, in a control message, or at
// the start of a session.
func (n *numbers) Advance(lower uint32) {
	if whole := n.whole(lower); int64(whole-n.latest) > 0 {
		n.latest = whole
	}
}
