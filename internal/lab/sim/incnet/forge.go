package incnet

import (
	"bytes"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// lateness is how much later a datagram comes once more at most: sessions may have ended by then.
const lateness = 30 * time.Millisecond

// spoil makes of a datagram one that must change nothing. More than the field
// may be wrong, so that it shows if that field is not looked at.
type spoil func(s *sim, p *forgery)

// far is a distance of slots that nothing has in flight.
const far = 1 << 30

var (
	otherJob    = func(_ *sim, p *forgery) { p.head.Job ^= 1 }
	otherStripe = func(s *sim, p *forgery) { p.head.Stripe += uint8(s.Terms.Stripes) }
	otherMember = func(_ *sim, p *forgery) { p.head.Member++ }
	otherOwner  = func(s *sim, p *forgery) { p.head.Owner += uint16(s.Terms.Ranks) }
	laterSlot   = func(_ *sim, p *forgery) { p.head.Slot += far }
	olderSlot   = func(_ *sim, p *forgery) { p.head.Slot -= far }
	noType      = func(_ *sim, p *forgery) { p.head.Type = 77 }
	noPayload   = func(_ *sim, p *forgery) { p.payload = nil }
)

// spoils are the ways to spoil a datagram, by its kind.
var spoils = map[wire.SlotKind][]spoil{
	wire.Contribution: {
		otherJob, otherStripe, otherMember, otherOwner, laterSlot, olderSlot, noType, noPayload,
		func(_ *sim, p *forgery) { p.head.Op = 99 },
	},
	wire.Kept: {
		otherJob, otherStripe, otherMember, otherOwner, laterSlot, olderSlot, noType,
		func(_ *sim, p *forgery) { p.head.Op = 99 },
		func(_ *sim, p *forgery) { p.head.Owner ^= 1 },
		func(_ *sim, p *forgery) { p.head.Type = uint8(reduce.BF16) },
		func(_ *sim, p *forgery) { p.kept = wire.SlotKept{} },
		func(_ *sim, p *forgery) { p.kept.Slots++ },
		func(_ *sim, p *forgery) { p.kept.Slots += far },
		func(_ *sim, p *forgery) { p.kept.Bytes += far },
	},
	wire.Result: {
		otherJob, otherStripe, otherOwner, laterSlot, olderSlot, noType, noPayload,
		func(_ *sim, p *forgery) { p.head.Owner ^= 1 },
		func(_ *sim, p *forgery) { p.head.Type ^= 1 },
		func(_ *sim, p *forgery) { p.head.Op ^= 1 },
		func(_ *sim, p *forgery) { p.head.Shape ^= 1 },
		func(_ *sim, p *forgery) { p.payload = p.payload[1:] },
		func(_ *sim, p *forgery) { p.payload = append(p.payload, 1) },
	},
	wire.Allowance: {
		otherJob, otherStripe, otherMember,
		func(_ *sim, p *forgery) { p.credit.Base += far },
		func(_ *sim, p *forgery) { p.credit.Limit += far },
		func(_ *sim, p *forgery) { p.credit.Base -= far; p.credit.Limit -= far; p.credit.Missing.From -= far },
	},
	wire.Status: {
		otherJob, otherStripe, otherMember,
		func(_ *sim, p *forgery) { p.status.Next += far },
	},
}

// forgery is a datagram to spoil, with its body taken apart.
type forgery struct {
	datagram
	credit wire.SlotCredit
	status wire.SlotStatus
	kept   wire.SlotKept
}

// body returns what the payload holds that is not elements, or nil.
func (p *forgery) body() interface {
	Get(b []byte) error
	Put(b []byte) int
} {
	switch p.head.Kind {
	case wire.Allowance:
		return &p.credit
	case wire.Status:
		return &p.status
	case wire.Kept:
		return &p.kept
	}
	return nil
}

// forge returns a copy of a datagram in which a field is spoiled, and all that
// is worth something to an attacker.
func (s *sim) forge(d *datagram) *datagram {
	q := forgery{datagram: *d}
	body := q.body()
	if body == nil {
		q.payload = bytes.Repeat([]byte{poison}, len(d.payload))
	} else if err := body.Get(bytes.Clone(d.payload)); err != nil {
		panic(err) // it was made here
	}
	q.credit.Missing.From = q.credit.Base
	q.credit.Missing.Bits = bytes.Repeat([]byte{0xff}, 20)
	q.status.Have += uint32(s.rng.IntN(10))
	pick(s.rng, spoils[q.head.Kind]...)(s, &q)
	if body != nil {
		q.payload = make([]byte, wire.SlotBodySize+wire.MaxSlotSet)
		q.payload = q.payload[:body.Put(q.payload)]
	}
	return &q.datagram
}
