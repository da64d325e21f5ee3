// Package wire holds every header format of the protocol, in one place: the
// header of a multicast datagram (Data), the control message that travels on
// the reliable path (Control), the greeting of a new connection (Hello) and the
// probe of a path (Probe).
//
// All integers are big-endian. Sizes are fixed, so a reader never has to guess
// how many bytes to wait for. docs/project/protocol.md shows the same layouts as byte
// tables.
//
// The words are in docs/reference/glossary.md.
package wire

import "errors"

// Version is the protocol version. Peers that disagree do not talk. In version 3 a listener answers greetings, records
// of the mesh may come in pieces, and ranks compare their calls (Compare); from version 4 on Broadcasts have no barrier
// (Begin), from version 5 on chunks may be relayed (Relay), from version 6 on the ring of ranks follows hosts, ranks
// may meet over IPv6, and try the networks that they share. In version 7 hosts with different numbers of ranks are
// nodes too, steps of columns and nodes carry the caller's call (Call), and repairs may be read (Introduce, Offer).
const Version = 7

// Errors that every decoder of this package may return. They are wrapped with
// what was found, so that a log line tells what arrived.
var (
	ErrShort   = errors.New("wire: message is shorter than its header")
	ErrMagic   = errors.New("wire: not a torch-mcast message")
	ErrVersion = errors.New("wire: protocol version differs")
	ErrField   = errors.New("wire: a field is out of range")
)
