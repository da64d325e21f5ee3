package identity

import (
	"encoding/binary"
	"io"
	"net"
)

// headerSize is the length of what precedes a record of TLS; its last two bytes are the length of the rest (RFC 8446,
// section 5.1).
const headerSize = 5

// records gives out the records of TLS on a connection, each from its own reads: whoever has read one has taken
// nothing of what follows it, which may be no TLS any more.
type records struct {
	net.Conn
	header  [headerSize]byte
	pending []byte // of header, not given out yet
	left    int    // of the record's rest
}

// Read implements net.Conn.
func (r *records) Read(p []byte) (int, error) {
	if len(r.pending) == 0 && r.left == 0 {
		if _, err := io.ReadFull(r.Conn, r.header[:]); err != nil {
			return 0, err
		}
		r.pending, r.left = r.header[:], int(binary.BigEndian.Uint16(r.header[headerSize-2:]))
	}
	if len(r.pending) > 0 {
		n := copy(p, r.pending)
		r.pending = r.pending[n:]
		return n, nil
	}
	n, err := r.Conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
