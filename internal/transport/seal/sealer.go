// Package seal makes and checks the keyed tags by which datagrams of those who know a secret are told from others:
// HighwayHash-128 over all that is in them (docs/decisions/0012-keyed-tags.md).
package seal

import (
	"crypto/subtle"
	"fmt"
	"hash"

	"github.com/minio/highwayhash"
)

// Size is the length of the tag behind the header of a sealed datagram, KeySize that of a key, in bytes.
const (
	Size    = 16
	KeySize = highwayhash.Size
)

// Sealer makes and checks the tags of one key. It allocates nothing and belongs to one goroutine at
// a time.
type Sealer struct {
	hash hash.Hash
	tag  [Size]byte
}

// New returns a Sealer for a key of 32 bytes. Another length is a mistake of the caller: it
// panics.
func New(key []byte) *Sealer {
	h, err := highwayhash.New128(key)
	if err != nil {
		panic(fmt.Sprintf("seal: a sealer's key has %d bytes; want 32", len(key)))
	}
	return &Sealer{hash: h}
}

// Seal writes the tag to the last Size bytes of head, which holds header and room for the tag.
func (s *Sealer) Seal(head, payload []byte) {
	s.put(nil, head, payload)
}

// Open reports whether the last Size bytes of head are the tag of what is before, and of
// payload.
func (s *Sealer) Open(head, payload []byte) bool {
	return s.holds(nil, head, payload)
}

// put writes the tag, of a number that is not sent as well, behind the header.
func (s *Sealer) put(number, head, payload []byte) {
	header := len(head) - Size
	copy(head[header:], s.sum(number, head[:header], payload))
}

// holds reports whether the tag is that of the number, the header and the payload.
func (s *Sealer) holds(number, head, payload []byte) bool {
	header := len(head) - Size
	return header >= 0 && subtle.ConstantTimeCompare(head[header:], s.sum(number, head[:header], payload)) == 1
}

// sum returns the tag of a number that is not sent, a header and a payload.
func (s *Sealer) sum(number, header, payload []byte) []byte {
	s.hash.Reset()
	_, _ = s.hash.Write(number) // a hash never fails
	_, _ = s.hash.Write(header)
	_, _ = s.hash.Write(payload)
	return s.hash.Sum(s.tag[:0])
}
