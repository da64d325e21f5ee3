package session

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Seals are those of a member's datagrams in both directions, on one stripe; nil: there are no tags.
type Seals struct {
	Out, In *seal.Sealer
	Stripe  uint32 // the sender's number under the keys of both directions
}

// newSeals returns those of all stripes of a session by the keys of both directions. There must be no others for the session.
func newSeals(out, in []byte, stripes int) []Seals {
	all := make([]Seals, stripes)
	for i := range uint32(stripes) {
		all[i] = Seals{Out: seal.New(seal.Tags, out, i), In: seal.New(seal.Tags, in, i), Stripe: i}
	}
	return all
}

// of returns those of a stripe; without a secret there are none.
func of(all []Seals, stripe int) Seals {
	if all == nil {
		return Seals{}
	}
	return all[stripe]
}

// Head returns the length of what precedes a payload in a datagram: header and tag, in bytes.
func (s *Seals) Head() int { return wire.SlotSize + s.Out.Size() }

// Add puts a datagram with those that the batch sends next, and returns its length in bytes. It is
// not ok if there is no room.
func (s *Seals) Add(b *datagram.Batch, h *wire.Slot, payload []byte) (bytes int, ok bool) {
	head := b.Add(payload)
	if head == nil {
		return 0, false
	}
	h.Put(head)
	if s.Out != nil {
		s.Out.Seal(0, head, payload, nil)
	}
	return len(head) + len(payload), true
}

// Open reads the header of a datagram and reports whether it and its tag are right.
func (s *Seals) Open(h *wire.Slot, head, payload []byte) bool {
	return len(head) == s.Head() && h.Get(head) == nil && s.Holds(head, payload)
}

// Holds reports whether a datagram's tag is right, or it needs none.
func (s *Seals) Holds(head, payload []byte) bool {
	return s.In == nil || s.In.Open(s.Stripe, 0, head, payload)
}
