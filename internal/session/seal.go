package session

import (
	"crypto/subtle"
	"fmt"
	"hash"

	"github.com/minio/highwayhash"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

// TagSize is the length of the tag behind the header of a sealed datagram, in bytes.
const TagSize = 16

// Sealer makes and checks the keyed tags of datagrams in one direction of one
// session: HighwayHash-128 over header and payload. It allocates nothing and belongs to one
// goroutine at a time.
type Sealer struct {
	hash hash.Hash
	tag  [TagSize]byte
}

// NewSealer returns a Sealer for a key of 32 bytes. Another length is a mistake of the caller: it
// panics.
func NewSealer(key []byte) *Sealer {
	h, err := highwayhash.New128(key)
	if err != nil {
		panic(fmt.Sprintf("session: a sealer's key has %d bytes; want 32", len(key)))
	}
	return &Sealer{hash: h}
}

// Seal writes the tag to the last TagSize bytes of head, which holds header and room for the tag.
func (s *Sealer) Seal(head, payload []byte) {
	header := len(head) - TagSize
	copy(head[header:], s.sum(head[:header], payload))
}

// Open reports whether the last TagSize bytes of head are the tag of what is before, and of
// payload.
func (s *Sealer) Open(head, payload []byte) bool {
	header := len(head) - TagSize
	return header >= 0 && subtle.ConstantTimeCompare(head[header:], s.sum(head[:header], payload)) == 1
}

func (s *Sealer) sum(header, payload []byte) []byte {
	s.hash.Reset()
	_, _ = s.hash.Write(header) // a hash never fails
	_, _ = s.hash.Write(payload)
	return s.hash.Sum(s.tag[:0])
}

// Seals are those of a member's datagrams in both directions; nil: there are no tags.
type Seals struct{ Out, In *Sealer }

// Head returns the length of what precedes a payload in a datagram: header and tag, in bytes.
func (s *Seals) Head() int {
	if s.Out == nil {
		return wire.SlotSize
	}
	return wire.SlotSize + TagSize
}

// Add puts a datagram with those that the batch sends next, and returns its length in bytes. It is
// not ok if there is no room.
func (s *Seals) Add(b *datagram.Batch, h *wire.Slot, payload []byte) (bytes int, ok bool) {
	head := b.Add(payload)
	if head == nil {
		return 0, false
	}
	h.Put(head)
	if s.Out != nil {
		s.Out.Seal(head, payload)
	}
	return len(head) + len(payload), true
}

// Open reads the header of a datagram and reports whether it and its tag are right.
func (s *Seals) Open(h *wire.Slot, head, payload []byte) bool {
	return len(head) == s.Head() && h.Get(head) == nil && (s.In == nil || s.In.Open(head, payload))
}
