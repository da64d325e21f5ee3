package wire

import "encoding/binary"

// HelloSize is the length of a greeting in bytes.
const HelloSize = 24

// helloMagic opens every connection: "mcst".
const helloMagic = 0x6d637374

// Purpose says what a new connection between two ranks is for.
type Purpose uint8

// The purposes of a connection.
const (
	// PurposeMesh is for liveness: heartbeats, faults, farewells.
	PurposeMesh Purpose = iota + 1
	// PurposeControl carries Control messages of the multicast protocol.
	PurposeControl
	// PurposeStream carries the bytes of a direct Reduce-Scatter.
	PurposeStream
	// PurposeMessage carries messages from rank to rank.
	PurposeMessage
	purposeEnd
)

// Answer is the byte with which a listener answers a Hello.
type Answer uint8

// The answers to a greeting.
const (
	Welcome Answer = iota + 1 // the listener has the connection
	Refused                   // it has one with the same rank for the same purpose already
)

// Hello is the first message on a TCP connection, sent by the side that
// connects. A listener closes a connection that does not open with one, so
// strangers have no effect; it answers any other with an Answer.
//
//	 0  magic    u32
//	 4  version  u8
//	 5  purpose  u8
//	 6  rank     u16  who connects
//	 8  job      u64
//	16  key      u64  drawn at random by the listener, known to members only
type Hello struct {
	Purpose Purpose
	Rank    uint16
	Job     uint64
	Key     uint64
}

// Put writes the greeting to b, which must hold HelloSize bytes.
func (h *Hello) Put(b []byte) {
	_ = b[HelloSize-1]
	binary.BigEndian.PutUint32(b[0:], helloMagic)
	b[4] = Version
	b[5] = byte(h.Purpose)
	binary.BigEndian.PutUint16(b[6:], h.Rank)
	binary.BigEndian.PutUint64(b[8:], h.Job)
	binary.BigEndian.PutUint64(b[16:], h.Key)
}

// Get reads a greeting from b.
func (h *Hello) Get(b []byte) error {
	if len(b) < HelloSize {
		return ErrShort
	}
	if binary.BigEndian.Uint32(b) != helloMagic {
		return ErrMagic
	}
	if b[4] != Version {
		return ErrVersion
	}
	h.Purpose = Purpose(b[5])
	if h.Purpose < PurposeMesh || h.Purpose >= purposeEnd {
		return ErrField
	}
	h.Rank = binary.BigEndian.Uint16(b[6:])
	h.Job = binary.BigEndian.Uint64(b[8:])
	h.Key = binary.BigEndian.Uint64(b[16:])
	return nil
}
