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
type spoil func(s *sim, p *packet)

// far is a distance of slots that nothing has in flight.
const far = 1 << 30

var (
	otherJob    = func(_ *sim, p *packet) { p.head.Job ^= 1 }
	otherStripe = func(s *sim, p *packet) { p.head.Stripe += uint8(s.Terms.Stripes) }
	otherMember = func(_ *sim, p *packet) { p.head.Member++ }
	otherOwner  = func(s *sim, p *packet) { p.head.Owner += uint16(s.Terms.Ranks) }
	laterSlot   = func(_ *sim, p *packet) { p.head.Slot += far }
	olderSlot   = func(_ *sim, p *packet) { p.head.Slot -= far }
	noType      = func(_ *sim, p *packet) { p.head.Type = 77 }
	noPayload   = func(_ *sim, p *packet) { p.payload = nil }
)

// spoils are the ways to spoil a datagram, by its kind.
var spoils = map[wire.SlotKind][]spoil{
	wire.Contribution: {
		otherJob, otherStripe, otherMember, otherOwner, laterSlot, olderSlot, noType, noPayload,
		func(_ *sim, p *packet) { p.head.Op = 99 },
	},
	wire.Kept: {
		otherJob, otherStripe, otherMember, otherOwner, laterSlot, olderSlot, noType,
		func(_ *sim, p *packet) { p.head.Op = 99 },
		func(_ *sim, p *packet) { p.head.Owner ^= 1 },
		func(_ *sim, p *packet) { p.head.Type = uint8(reduce.BF16) },
		func(_ *sim, p *packet) { p.kept = wire.SlotKept{} },
		func(_ *sim, p *packet) { p.kept.Slots++ },
		func(_ *sim, p *packet) { p.kept.Slots += far },
		func(_ *sim, p *packet) { p.kept.Bytes += far },
	},
	wire.Result: {
		otherJob, otherStripe, otherOwner, laterSlot, olderSlot, noType, noPayload,
		func(_ *sim, p *packet) { p.head.Owner ^= 1 },
		func(_ *sim, p *packet) { p.head.Type ^= 1 },
		func(_ *sim, p *packet) { p.head.Op ^= 1 },
		func(_ *sim, p *packet) { p.head.Shape ^= 1 },
		func(_ *sim, p *packet) { p.payload = p.payload[1:] },
		func(_ *sim, p *packet) { p.payload = append(p.payload, 1) },
	},
	wire.Allowance: {
		otherJob, otherStripe, otherMember,
		func(_ *sim, p *packet) { p.credit.Base += far },
		func(_ *sim, p *packet) { p.credit.Limit += far },
		func(_ *sim, p *packet) { p.credit.Base -= far; p.credit.Limit -= far; p.credit.Missing.From -= far },
	},
	wire.Status: {
		otherJob, otherStripe, otherMember,
		func(_ *sim, p *packet) { p.status.Next += far },
	},
}

// packet is a datagram taken apart.
type packet struct {
	head    wire.Slot
	payload []byte // of elements
	credit  wire.SlotCredit
	status  wire.SlotStatus
	kept    wire.SlotKept
}

// unpack takes a datagram apart.
func unpack(data []byte) (p packet) {
	p.head = headOf(data)
	body := append([]byte(nil), data[wire.SlotSize:]...)
	var err error
	switch p.head.Kind {
	case wire.Allowance:
		err = p.credit.Get(body)
	case wire.Status:
		err = p.status.Get(body)
	case wire.Kept:
		err = p.kept.Get(body)
	default:
		p.payload = body
	}
	if err != nil {
		panic(err) // it was made here
	}
	return p
}

// pack puts it together.
func (p *packet) pack() []byte {
	data := make([]byte, wire.SlotSize+wire.SlotBodySize+wire.MaxSlotSet)
	p.head.Put(data)
	body := data[wire.SlotSize:]
	n := 0
	switch p.head.Kind {
	case wire.Allowance:
		n = p.credit.Put(body)
	case wire.Status:
		n = p.status.Put(body)
	case wire.Kept:
		n = p.kept.Put(body)
	default:
		return append(data[:wire.SlotSize], p.payload...)
	}
	return data[:wire.SlotSize+n]
}

// forge returns a copy of a datagram in which a field is spoiled, and all that
// is worth something to an attacker.
func (s *sim) forge(data []byte) []byte {
	q := unpack(data)
	q.payload = bytes.Repeat([]byte{poison}, len(q.payload))
	q.credit.Missing.From = q.credit.Base
	q.credit.Missing.Bits = bytes.Repeat([]byte{0xff}, 20)
	q.status.Have += uint32(s.rng.IntN(10))
	pick(s.rng, spoils[q.head.Kind]...)(s, &q)
	return q.pack()
}
