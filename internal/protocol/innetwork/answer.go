package innetwork

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Out is a datagram with payload that a node is to send.
type Out struct {
	Member  int // Up: the parent
	Head    wire.Slot
	Payload []byte
	again   bool
}

// Next returns the next datagram with payload to send: results down first,
// then partial results up.
func (s *Stage) Next() (Out, bool) {
	for s.ready.len() > 0 {
		n := s.ready.peek()
		sl := &s.slots[s.index(n)]
		if !s.acknowledged(n, sl) {
			return s.resultOf(n), true
		}
		s.ready.pop() // acknowledged since it was queued
		sl.queued = false
	}
	if s.up != nil {
		return s.up.contribution(s)
	}
	return Out{}, false
}

func (s *Stage) resultOf(n uint32) Out {
	i := s.index(n)
	h := s.slots[i].head
	to := s.cfg.Owner[h.Owner]
	h.Kind, h.Member, h.Wide = wire.Result, uint16(to), false
	return Out{Member: to, Head: h, Payload: s.area(i, 0)[:s.slots[i].elements*reduce.Type(h.Type).Size()]}
}

// Pop says that what Next returned was sent, or need not be.
func (s *Stage) Pop(now Time, o *Out) {
	if o.Member == Up {
		s.up.sent(now, o.Head.Slot, o.again, 1)
		return
	}
	sl := &s.slots[s.index(s.ready.pop())]
	sl.queued = false
	s.stats.Results++
	if sl.sent {
		s.stats.Again++
		sl.repeats++
	}
	sl.sent, sl.asked, sl.sentAt = true, false, now
	s.verify()
}

// Status takes what a member says about the results it holds.
func (s *Stage) Status(now Time, member int, h *wire.Slot, st *wire.SlotStatus) {
	m := &s.members[member]
	if !s.meant(h, wire.Status, member) || wire.Before(s.base+uint32(len(s.slots)), st.Next) {
		s.stats.Malformed++
		return
	}
	// What the member sent before has left the queue, or was lost there.
	m.seen = wire.Later(m.seen, st.Next)
	if wire.Before(m.have, st.Have) {
		m.have = st.Have
		s.settle()
	}
	if st.Poll {
		s.stats.Polls++
		m.whole = wire.Later(m.whole, s.base)
		for wire.Before(m.whole, st.Next) && s.has(s.index(m.whole), member) {
			m.whole++
		}
		if wire.Before(m.whole, st.Next) {
			s.checkPath(m.up.poll(now, m.taken, st.Heard, s.cfg.Timeout), PathError{Member: member, Bytes: s.cfg.Chunk})
			if m.up.name(now) {
				m.lacks(m.whole, st.Next)
			}
		} else {
			m.up.clear()
		}
		s.oweAgain(now, member, st)
		s.makeDue(member)
	}
	s.verify()
}

// oweAgain queues the results that a member does not hold. One that a held one has
// overtaken is lost. Another may have crossed with the poll: the answer then says so, and if the member, who
// gets it behind that result, polls once more, the result is lost.
func (s *Stage) oweAgain(now Time, member int, st *wire.SlotStatus) {
	m := &s.members[member]
	if s.results == 0 {
		m.down.clear()
		return
	}
	held := wire.SlotSet{From: st.Have, Bits: st.Held}
	overtaken := st.Have
	for i := held.Len() - 1; i >= 0 && overtaken == st.Have; i-- {
		if held.Has(i) {
			overtaken += uint32(i)
		}
	}
	missing := false
	for n := wire.Later(s.base, m.have); wire.Before(n, s.top); n++ {
		sl := &s.slots[s.index(n)]
		if !sl.result || s.cfg.Owner[sl.head.Owner] != member {
			continue
		}
		if i := n - held.From; i < uint32(held.Len()) && held.Has(int(i)) {
			continue
		}
		if !missing && sl.sent {
			missing = true
			waited := m.down.poll(now, st.Have+uint32(held.Count()), st.Heard, s.cfg.Timeout)
			s.checkPath(waited, PathError{Member: member, Down: true, Bytes: sl.elements * reduce.Type(sl.head.Type).Size()})
		}
		switch {
		case !sl.asked && !wire.Before(n, overtaken):
			sl.asked = true
			m.owed = true
		case now-sl.sentAt >= repeatAfter(sl.repeats):
			s.queue(n)
		}
	}
	if !missing {
		m.down.clear()
	}
}

// saw notes that a member's contributions up to slot n have left the queue,
// and reports gaps that are too old to be reordering.
func (s *Stage) saw(member int, n uint32) {
	m := &s.members[member]
	m.seen = wire.Later(m.seen, n+1)
	m.scan = wire.Later(m.scan, s.base)
	for wire.Before(m.scan+reorderSlots, m.seen) {
		if !s.has(s.index(m.scan), member) {
			s.stats.Gaps++
			m.lacks(m.scan, m.seen-reorderSlots)
			m.scan = m.seen - reorderSlots
			s.makeDue(member)
			return
		}
		m.scan++
	}
	if s.cfg.Queue > 0 && s.limit(m)-m.granted >= s.quarter {
		s.makeDue(member)
	}
}

// lacks widens the range of slots to be reported as missing.
func (m *member) lacks(from, to uint32) {
	if !wire.Before(from, to) {
		return
	}
	if m.from == m.to {
		m.from, m.to = from, to
		return
	}
	if wire.Before(from, m.from) {
		m.from = from
	}
	m.to = wire.Later(m.to, to)
}

// settle frees the slots with acknowledged results.
func (s *Stage) settle() {
	if s.up != nil {
		s.up.settle(s)
		return
	}
	for s.base != s.top {
		sl := &s.slots[s.index(s.base)]
		if !s.acknowledged(s.base, sl) {
			break
		}
		s.free()
	}
	s.allow(false)
}

// acknowledged reports whether the result of a slot was sent, and its owner holds it.
func (s *Stage) acknowledged(n uint32, sl *slot) bool {
	return sl.sent && !wire.Before(s.members[s.cfg.Owner[sl.head.Owner]].have, n+1)
}

// free gives the slot at the base back.
func (s *Stage) free() {
	i := s.index(s.base)
	last := s.slots[i].head.Last
	if s.slots[i].queued {
		s.ready.remove(s.base)
	}
	if s.slots[i].result {
		s.results--
	}
	s.slots[i] = slot{}
	clear(s.bits[i*s.words : (i+1)*s.words])
	s.base++
	if last {
		s.allow(true)
	}
}

// allow makes allowances due when the base has moved by enough, or to the end
// of an operation, which members wait for.
func (s *Stage) allow(end bool) {
	if !end && s.base-s.announced < s.quarter {
		return
	}
	s.announced = s.base
	for m := range s.members {
		s.makeDue(m)
	}
}

func (s *Stage) makeDue(member int) {
	if m := &s.members[member]; !m.isDue {
		m.isDue = true
		s.due.push(uint32(member))
	}
}

// limit returns the slot before which a member may send.
func (s *Stage) limit(m *member) uint32 {
	limit := s.base + uint32(len(s.slots))
	if queue := m.seen + s.cfg.allowance(); s.cfg.Queue > 0 && wire.Before(queue, limit) {
		limit = queue
	}
	return limit
}

// NextCredit returns an allowance to send, if one is due. Its bits are valid until the next call.
func (s *Stage) NextCredit() (member int, h wire.Slot, c wire.SlotCredit, ok bool) {
	if s.due.len() == 0 {
		return 0, wire.Slot{}, wire.SlotCredit{}, false
	}
	member = int(s.due.pop())
	m := &s.members[member]
	m.isDue = false
	m.granted = s.limit(m)
	h = wire.Slot{Kind: wire.Allowance, Stripe: uint8(s.cfg.Stripe), Member: uint16(member), Slot: s.base, Job: s.cfg.Job}
	c = wire.SlotCredit{Base: s.base, Limit: m.granted, Owed: m.owed, Missing: s.missingOf(member)}
	m.from, m.to, m.owed = 0, 0, false
	return member, h, c, true
}

// missingOf returns the contributions that a member is to send again.
func (s *Stage) missingOf(member int) wire.SlotSet {
	m := &s.members[member]
	if m.from == m.to {
		return wire.SlotSet{}
	}
	m.from = wire.Later(m.from, s.base)
	return wire.SlotSet{From: m.from, Bits: s.missing.pack(int(int32(m.to-m.from)), func(i int) bool {
		return !s.has(s.index(m.from+uint32(i)), member)
	})}
}

// describe says what a contribution is.
func describe(h *wire.Slot, elements int) string {
	return fmt.Sprintf("a reduction (%s), with %d elements for place %d in a slot of an operation of digest %#x",
		reduce.Words(reduce.Type(h.Type), reduce.Op(h.Op), h.Factor), elements, h.Owner, h.Shape)
}
