package session

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Seals are those of a member's datagrams in both directions; nil: there are no tags.
type Seals struct{ Out, In *seal.Sealer }

// Head returns the length of what precedes a payload in a datagram: header and tag, in bytes.
func (s *Seals) Head() int {
	if s.Out == nil {
		return wire.SlotSize
	}
	return wire.SlotSize + seal.Size
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

// seals returns new sealers of a session's keys.
func (k *keys) seals() Seals { return Seals{seal.New(k.out), seal.New(k.in)} }
