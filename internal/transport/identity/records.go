package identity

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
)

// headerSize is the length of a record's header in TLS; its last two bytes are the length of the rest (RFC 8446,
// section 5.1).
const headerSize = 5

// majorVersion is the second byte of every record of TLS, and handshake the first byte of a connection's first records.
const (
	majorVersion = 3
	handshake    = 22
)

// maxEarly is how many bytes of records an end takes from a peer that has proven nothing yet; ours send some 2 KiB.
// everything is the limit after the proof.
const (
	maxEarly   = 8 << 10
	everything = math.MaxInt64
)

// errChatter says that somebody has said more than a proof takes.
var errChatter = fmt.Errorf("more than %d bytes, and no proof of MCAST_SECRET yet", maxEarly)

// records gives out the records of TLS on a connection, each from its own reads: the reader of a record has taken
// nothing of the bytes behind, which may be no TLS any more.
type records struct {
	net.Conn
	header  [headerSize]byte
	pending []byte // of header, not given out yet
	left    int    // of the record's rest
	early   int64  // bytes of records that may still come
}

// Read implements net.Conn.
func (r *records) Read(p []byte) (int, error) {
	if len(r.pending) == 0 && r.left == 0 {
		if _, err := io.ReadFull(r.Conn, r.header[:]); err != nil {
			return 0, err
		}
		r.pending, r.left = r.header[:], int(binary.BigEndian.Uint16(r.header[headerSize-2:]))
		// A header that is no TLS passes: TLS refuses it and says why.
		if r.early -= int64(headerSize + r.left); r.early < 0 && r.header[1] == majorVersion {
			return 0, errChatter
		}
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
