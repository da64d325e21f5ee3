package seal

import "encoding/binary"

// Numbered makes and checks the tags of datagrams whose numbers count on for ever, of which they carry the lower 32
// bits. The tag is over all 64, as extended sequence numbers are in IPsec (RFC 4303, section 2.2.1): a datagram that
// was recorded and comes again when the lower bits have wrapped around has the wrong tag. Those who speak to each
// other must be less than 2^31 numbers apart.
type Numbered struct {
	*Sealer
	latest uint64 // number that is known to be in use
	number [8]byte
}

// NewNumbered returns a Numbered for a key of 32 bytes, as New does.
func NewNumbered(key []byte) *Numbered { return &Numbered{Sealer: New(key)} }

// whole returns the number with these lower bits that is closest to the latest.
func (n *Numbered) whole(lower uint32) uint64 {
	return n.latest + uint64(int64(int32(lower-uint32(n.latest))))
}

// Advance says that a number is in use, on the word of somebody who is believed.
func (n *Numbered) Advance(lower uint32) {
	if whole := n.whole(lower); int64(whole-n.latest) > 0 {
		n.latest = whole
	}
}

// Seal writes the tag to the last Size bytes of head, which holds header and room for the tag.
func (n *Numbered) Seal(lower uint32, head, payload []byte) {
	n.put(n.spelled(lower), head, payload)
	n.Advance(lower)
}

// Open reports whether the last Size bytes of head are the tag of the number, of what is before, and of payload.
func (n *Numbered) Open(lower uint32, head, payload []byte) bool {
	if !n.holds(n.spelled(lower), head, payload) {
		return false
	}
	n.Advance(lower)
	return true
}

// spelled returns the number as tags cover it, valid until the next call.
func (n *Numbered) spelled(lower uint32) []byte {
	binary.BigEndian.PutUint64(n.number[:], n.whole(lower))
	return n.number[:]
}
