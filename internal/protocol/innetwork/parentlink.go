package innetwork

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// parentLink makes a node a member of its parent: slots that are complete here are its contributions there, and the
// parent's base is the base here.
type parentLink struct {
	feed
	number int
	have   uint32 // the owners below have acknowledged all results in slots below
	wanted uint32 // no result is missing in slots below
	ack    bool
	bits   slotBits
	kept   []byte // bodies of what the only rank below keeps, by slot modulo window
}

func newParentLink(c *StageConfig) *parentLink {
	p := &parentLink{number: c.Number, have: c.First, wanted: c.First, kept: make([]byte, c.Slots*wire.SlotKeptSize)}
	p.init(&c.Terms)
	return p
}

// extend lets slots be sent that are complete, in order.
func (p *parentLink) extend(s *Stage) {
	for p.end != s.top && s.slots[s.index(p.end)].complete {
		p.end++
	}
}

// contribution returns the next partial result to send up.
func (p *parentLink) contribution(s *Stage) (Out, bool) {
	n, again, ok := p.take()
	if !ok {
		return Out{}, false
	}
	i := s.index(n)
	sl := &s.slots[i]
	out := Out{Member: Up, Head: sl.head, again: again}
	out.Head.Member = uint16(p.number)
	if sl.summed == 0 {
		out.Head.Kind, out.Head.Wide = wire.Kept, false
		out.Payload = p.kept[i*wire.SlotKeptSize:][:wire.SlotKeptSize]
		k := wire.SlotKept{Slots: 1, Bytes: uint32(sl.elements * reduce.Type(sl.head.Type).Size())}
		k.Put(out.Payload)
		return out, true
	}
	out.Head.Kind, out.Head.Wide = wire.Contribution, true
	out.Payload = s.area(i, 0)[:sl.elements*reduce.Type(sl.head.Type).Accumulator().Size()]
	return out, true
}

// settle moves have past the slots that no owner below waits for.
func (p *parentLink) settle(s *Stage) {
	for p.have != p.next {
		sl := &s.slots[s.index(p.have)]
		if to := s.cfg.Owner[sl.head.Owner]; to >= 0 {
			if !s.acknowledged(p.have, sl) {
				return
			}
			p.ack = true
		}
		p.have++
	}
}

// want moves wanted to the next slot with a result that the parent owes.
func (p *parentLink) want(s *Stage) {
	p.wanted = wire.Later(p.wanted, p.base)
	for p.wanted != p.next {
		if sl := &s.slots[s.index(p.wanted)]; s.cfg.Owner[sl.head.Owner] >= 0 && !sl.result {
			return
		}
		p.wanted++
	}
}

// Result takes a result that the parent has sent.
func (s *Stage) Result(now Time, h *wire.Slot, payload []byte) {
	if !s.meant(h, wire.Result, s.up.number) || !s.inWindow(h.Slot) || !wire.Before(h.Slot, s.up.next) {
		s.stats.Malformed++
		return
	}
	i := s.index(h.Slot)
	sl := &s.slots[i]
	if !same(&sl.head, h) || s.cfg.Owner[sl.head.Owner] < 0 || len(payload) != sl.elements*reduce.Type(h.Type).Size() {
		s.stats.Malformed++
		return
	}
	s.up.answeredNow()
	s.up.ack = true
	if sl.result {
		s.stats.Duplicates++
		return
	}
	copy(s.area(i, 0), payload)
	s.resulted(sl)
	s.up.again.Clear(s.up.index(h.Slot))
	s.up.arm(now)
	if s.up.want(s); wire.Before(s.up.wanted, h.Slot) {
		s.up.pollWithin(now, s.cfg.Reorder)
	}
}

// Credit takes an allowance of the parent.
func (s *Stage) Credit(now Time, h *wire.Slot, c *wire.SlotCredit) {
	p := s.up
	p.settle(s)
	if !s.meant(h, wire.Allowance, p.number) || wire.Before(p.have, c.Base) {
		s.stats.Malformed++
		return
	}
	if p.credit(now, c) {
		for s.base != p.base {
			s.free()
		}
		s.allow(false)
	}
	for n := p.base; p.again.Count() > 0 && n != p.next; n++ {
		if s.slots[s.index(n)].result {
			p.again.Clear(p.index(n)) // its place holds the result by now
		}
	}
}

// NextStatus returns a message to the parent to send now, if there is one.
func (s *Stage) NextStatus(now Time) (wire.Slot, wire.SlotStatus, bool) {
	p := s.up
	p.settle(s)
	poll, heard := p.polling(now)
	if !poll && !p.ack {
		return wire.Slot{}, wire.SlotStatus{}, false
	}
	p.ack = false
	held := p.bits[:0]
	if s.results > 0 {
		held = p.bits.pack(int(p.next-p.have), func(i int) bool {
			return s.slots[s.index(p.have+uint32(i))].result
		})
	}
	return wire.Slot{
			Kind: wire.Status, Stripe: uint8(s.cfg.Stripe), Member: uint16(p.number), Slot: p.have, Job: s.cfg.Job,
		},
		wire.SlotStatus{Have: p.have, Next: p.next, Poll: poll, Heard: heard, Held: held}, true
}

// Blocked says that a message to the parent, if one is due, cannot go yet: see Silence.
func (s *Stage) Blocked(now Time) { s.up.blocked(now) }

// Deadline returns when Expire is to be called. Only a node with a parent has timers.
func (s *Stage) Deadline() (Time, bool) {
	if s.up == nil {
		return 0, false
	}
	return s.up.deadline()
}

// Expire lets the timers run that are due.
func (s *Stage) Expire(now Time) {
	if s.up != nil {
		s.up.expire(now)
	}
}

// Silence returns for how long the parent has not answered although it was asked to, or was to
// be asked and there was no room. It counts as Member.Silence does.
func (s *Stage) Silence(now, limit Time) Time {
	if s.up == nil {
		return 0
	}
	return s.up.silence(now, limit)
}
