package session

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Seals are the sealers of a member's datagrams in both directions, on one stripe; nil: datagrams go as they are. Slots
// are numbered without end. Datagrams carry the lower half of the number and seals cover all bits, so that recorded
// datagrams are not accepted when the lower halves have wrapped.
type Seals struct {
	Out, In *seal.Sealer
	Stripe  uint32 // the sender's number under the keys of both directions
	first   uint32 // slot of the job in the stripe
}

// errNoKey says that there is nothing to encrypt by.
var errNoKey = errors.New("MCAST_ENCRYPT takes MCAST_SECRET, at every rank and at the switch")

// kindOf returns what sealers do.
func kindOf(encrypt bool) seal.Kind {
	if encrypt {
		return seal.Encryption
	}
	return seal.Tags
}

// newSeals returns those of all stripes of a session by the keys of both directions. There must be no others for the
// session.
func newSeals(kind seal.Kind, k *keys, stripes int) []Seals {
	all := make([]Seals, stripes)
	for i := range uint32(stripes) {
		all[i] = Seals{Out: seal.New(kind, k.out, i), In: seal.New(kind, k.in, i), Stripe: i}
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

// Begin says which is the first slot of the job in the stripe. Both ends call it with the same before any datagram.
func (s *Seals) Begin(first uint32) {
	s.first = first
	s.inUse(first)
}

// inUse says that a slot is in use, in whichever direction: a member may only send for long, or only receive.
func (s *Seals) inUse(slot uint32) {
	if s.Out != nil {
		s.Out.Advance(slot)
		s.In.Advance(slot)
	}
}

// number is what a datagram counts as: its slot, or that with which its message begins. Echoes have none, and are over
// before any slot is.
func (s *Seals) number(h *wire.Slot) uint32 {
	if h.Kind == wire.Echo {
		return s.first
	}
	return h.Slot
}

// Head returns the length of what precedes a payload in a datagram: header and seal, in bytes.
func (s *Seals) Head() int { return wire.SlotSize + s.Out.Size() }

// Encrypt reports whether payloads are hidden: then they are opened where they are received, and nowhere else.
func (s *Seals) Encrypt() bool { return s.Out.Encrypts() }

// Add appends a datagram to the batch that is sent next, and returns its length in bytes. It is not
// ok if there is no room.
func (s *Seals) Add(b *datagram.Batch, h *wire.Slot, payload []byte) (bytes int, ok bool) {
	var head, sealed []byte
	if s.Encrypt() {
		head, sealed = b.Reserve(len(payload))
	} else {
		head = b.Add(payload)
	}
	if head == nil {
		return 0, false
	}
	h.Put(head)
	if s.Out != nil {
		n := s.number(h)
		s.Out.Seal(n, head, payload, sealed)
		s.In.Advance(n)
	}
	return len(head) + len(payload), true
}

// Open reads the header of a datagram and reports whether it and its seal are right. A payload that is encrypted has
// seal.Spare bytes of capacity behind it, and is decrypted where it lies.
func (s *Seals) Open(h *wire.Slot, head, payload []byte) bool {
	return len(head) == s.Head() && h.Get(head) == nil && s.Holds(h, head, payload)
}

// Holds does the rest of Open once the header is read.
func (s *Seals) Holds(h *wire.Slot, head, payload []byte) bool {
	if s.In == nil {
		return true
	}
	n := s.number(h)
	if !s.In.Open(s.Stripe, n, head, payload) {
		return false
	}
	s.Out.Advance(n)
	return true
}
