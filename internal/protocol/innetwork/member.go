package innetwork

import (
	"math"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Member is a rank's side of a job.
type Member struct {
	terms   Terms
	rank    int
	number  int
	stripes []stripe
	ops     []*op // in flight, oldest first
	spare   []*op
	posted  uint32
	past    past // nothing without the build tag invariants
}

// op is an operation in flight.
type op struct {
	collective.Op
	layout
	seq   uint32
	shape uint16
	keeps bool     // the contribution to the own shard is not sent
	begin []uint32 // its first slot in each stripe
	end   []uint32 // the slot after its last
}

// stripe is a member's side of a stripe.
type stripe struct {
	feed
	have uint32        // every own result in slots below is held
	held bitmap.Bitmap // own results from have on that are held, by slot modulo window
	ack  bool          // there is something to acknowledge
	bits slotBits
}

// NewMember returns the state of a rank that was admitted as member number of a
// node. The terms have been checked.
func NewMember(rank, number int, t Terms) *Member {
	m := &Member{terms: t, rank: rank, number: number, stripes: make([]stripe, t.Stripes)}
	for i := range m.stripes {
		m.stripes[i].init(&t)
		m.stripes[i].have = t.First
		m.stripes[i].held.Reset(t.Slots)
	}
	return m
}

// Post begins an operation and returns its number. The caller has checked the
// arguments and that there is room.
func (m *Member) Post(_ Time, o collective.Op) uint32 {
	var p *op
	if n := len(m.spare); n > 0 {
		p, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		p = &op{begin: make([]uint32, len(m.stripes)), end: make([]uint32, len(m.stripes))}
	}
	if o.Reduction != reduce.PremulSum {
		o.Factor = 0
	}
	p.Op, p.layout, p.seq, p.shape = o, m.terms.layoutOf(m.posted, &o), m.posted, shapeOf(&o, m.posted)
	p.keeps = m.terms.keeps(o.Type)
	for i := range m.stripes {
		s := &m.stripes[i]
		p.begin[i] = s.end
		s.end += uint32(p.slots(i)) // fewer chunks than memory has bytes
		p.end[i] = s.end
	}
	m.posted++
	m.ops = append(m.ops, p)
	for i := range m.stripes {
		m.advance(i)
	}
	m.verify()
	return p.seq
}

// find returns the operation in flight that a slot belongs to, or nil.
func (m *Member) find(stripe int, slot uint32) *op {
	for _, p := range m.ops {
		if wire.Before(slot, p.end[stripe]) {
			if wire.Before(slot, p.begin[stripe]) {
				return nil
			}
			return p
		}
	}
	return nil
}

// at returns what a slot of an operation carries.
func (p *op) at(stripe int, slot uint32) chunk { return p.layout.at(stripe, int(slot-p.begin[stripe])) }

// Run is a stretch of chunks of one owner's shard to be sent. If its kind is wire.Kept, the
// shard is this rank's own, which it keeps: one datagram stands for all of them, see Kept.
type Run struct {
	// Head is of the first chunk. In the chunks after it Slot counts up; Last is of the last one alone: see Header.
	Head   wire.Slot
	Seq    uint32 // of the operation
	Owner  int    // rank that owns the shard
	Offset int    // in the shard, in bytes
	Bytes  int    // of all chunks
	Step   int    // bytes of a chunk, the last may be shorter
	Count  int    // chunks
	Again  bool   // they were sent before, and lost
}

// Header returns the header of the i-th chunk of a run.
func (r *Run) Header(i int) wire.Slot {
	h := r.Head
	h.Slot += uint32(i)
	h.Last = h.Last && i == r.Count-1
	return h
}

// Kept returns the datagram that says of the first n chunks of a run that they are kept.
func (r *Run) Kept(n int) (wire.Slot, wire.SlotKept) {
	h := r.Head
	h.Last = h.Last && n == r.Count
	return h, wire.SlotKept{Slots: uint32(n), Bytes: uint32(min(n*r.Step, r.Bytes))}
}

// NextRun returns the slots to send next in a stripe: lost ones first.
func (m *Member) NextRun(stripe int) (Run, bool) {
	s := &m.stripes[stripe]
	slot, again, ok := s.take()
	if !ok {
		return Run{}, false
	}
	p := m.find(stripe, slot)
	c := p.at(stripe, slot)
	n := s.runLength(slot, again, c.run)
	r := Run{
		Head: wire.Slot{
			Kind: wire.Contribution, Type: uint8(p.Type), Op: uint8(p.Reduction), Stripe: uint8(stripe),
			Member: uint16(m.number), Owner: uint16(c.owner), Shape: p.shape, Last: slot+uint32(n) == p.end[stripe],
			Slot: slot, Job: m.terms.Job, Factor: p.Factor,
		},
		Seq: p.seq, Owner: c.owner, Offset: c.offset, Step: p.step, Count: n, Again: again,
	}
	r.Bytes = min(n*p.step, p.bytes-c.offset)
	if p.keeps && c.owner == m.rank {
		r.Head.Kind = wire.Kept
	}
	return r, true
}

// Sent says that the first n chunks of a run that NextRun has just returned were sent.
func (m *Member) Sent(now Time, r *Run, n int) {
	m.stripes[r.Head.Stripe].sent(now, r.Head.Slot, r.Again, n)
	m.verify()
}

// Place is a stretch of this rank's own shard of an operation.
type Place struct {
	Seq           uint32
	Offset, Bytes int
	// Partial says that the partial result of the others comes: before Received, it is to be completed by this rank's
	// input there (reduce.Complete).
	Partial bool
}

// Expect returns where the next result will lie, if all goes well.
func (m *Member) Expect(stripe int) (Place, bool) {
	s := &m.stripes[stripe]
	if !wire.Before(s.have, s.next) {
		return Place{}, false
	}
	p := m.find(stripe, s.have)
	c := p.at(stripe, s.have)
	return Place{p.seq, c.offset, c.bytes, p.keeps}, true
}

// Place returns where the n payload bytes of a result belong. It is not ok to
// take a result that came before, or that nobody can have sent.
func (m *Member) Place(_ Time, h *wire.Slot, n int) (Place, bool) {
	if h.Kind != wire.Result || h.Job != m.terms.Job || int(h.Stripe) >= len(m.stripes) || int(h.Owner) != m.rank {
		return Place{}, false
	}
	s := &m.stripes[h.Stripe]
	if wire.Before(h.Slot, s.base) || !wire.Before(h.Slot, s.next) {
		return Place{}, false
	}
	if wire.Before(h.Slot, s.have) || s.held.Has(s.index(h.Slot)) {
		s.ack = true // the acknowledgement was lost
		return Place{}, false
	}
	p := m.find(int(h.Stripe), h.Slot)
	if p == nil || h.Type != uint8(p.Type) || h.Op != uint8(p.Reduction) || h.Shape != p.shape || h.Wide {
		return Place{}, false
	}
	c := p.at(int(h.Stripe), h.Slot)
	if c.owner != m.rank || n != c.bytes {
		return Place{}, false
	}
	s.answeredNow()
	return Place{p.seq, c.offset, c.bytes, p.keeps}, true
}

// Received says that the payload of a result for which Place was ok is there.
func (m *Member) Received(now Time, h *wire.Slot) {
	s := &m.stripes[h.Stripe]
	s.held.Set(s.index(h.Slot))
	s.ack = true
	m.advance(int(h.Stripe))
	s.arm(now)
	if s.held.Count() > 0 {
		s.pollWithin(now, m.terms.Reorder)
	}
	m.verify()
}

// advance moves have to the next own slot without a result here.
func (m *Member) advance(stripe int) {
	s := &m.stripes[stripe]
	for wire.Before(s.have, s.end) {
		p := m.find(stripe, s.have)
		if p == nil {
			return // Post appends it
		}
		i := int(s.have - p.begin[stripe])
		s.have += uint32(p.seek(stripe, i, m.rank) - i)
		if s.have == p.end[stripe] {
			continue
		}
		if !s.held.Clear(s.index(s.have)) {
			return
		}
		s.have++
	}
}

// Credit takes an allowance.
func (m *Member) Credit(now Time, h *wire.Slot, c *wire.SlotCredit) {
	if h.Kind == wire.Allowance && h.Job == m.terms.Job && int(h.Stripe) < len(m.stripes) && int(h.Member) == m.number {
		s := &m.stripes[h.Stripe]
		if wire.Before(s.have, c.Base) {
			return // no node can know that we hold what we do not
		}
		s.credit(now, c)
	}
	m.verify()
}

// NextStatus returns a message to send now, if there is one. To ask for it once a
// round, after all that has arrived was taken, makes one acknowledgement of many.
func (m *Member) NextStatus(now Time, stripe int) (wire.Slot, wire.SlotStatus, bool) {
	s := &m.stripes[stripe]
	poll, heard := s.polling(now)
	if !poll && !s.ack {
		return wire.Slot{}, wire.SlotStatus{}, false
	}
	s.ack = false
	return wire.Slot{Kind: wire.Status, Stripe: uint8(stripe), Member: uint16(m.number), Slot: s.have, Job: m.terms.Job},
		wire.SlotStatus{Have: s.have, Next: s.next, Poll: poll, Heard: heard, Held: s.heldBits()}, true
}

// heldBits returns the results beyond have that are held, as a SlotStatus has them.
func (s *stripe) heldBits() []byte {
	if s.held.Count() == 0 {
		return nil
	}
	return s.bits.pack(int(s.next-s.have), func(i int) bool {
		return s.held.Has(s.index(s.have + uint32(i)))
	})
}

// Deadline returns when Expire is to be called, unless something comes before.
func (m *Member) Deadline() (Time, bool) {
	first := Time(math.MaxInt64)
	for i := range m.stripes {
		if at, ok := m.stripes[i].deadline(); ok {
			first = min(first, at)
		}
	}
	return first, first != math.MaxInt64
}

// Expire lets the timers run that are due.
func (m *Member) Expire(now Time) {
	for i := range m.stripes {
		m.stripes[i].expire(now)
	}
}

// Silence returns for how long the node has not answered although it was asked to. It counts from look to look, and a
// quarter of limit for each at most: a member that stood still did not wait.
func (m *Member) Silence(now, limit Time) Time {
	var longest Time
	for i := range m.stripes {
		longest = max(longest, m.stripes[i].silence(now, limit))
	}
	return longest
}

// NextDone removes an operation that is done, the oldest of them, and returns its number. Then nobody needs this rank's
// input any more. Operations in other stripes may be done before earlier ones.
func (m *Member) NextDone() (seq uint32, ok bool) {
	for n, p := range m.ops {
		if m.done(p) {
			m.ops = slices.Delete(m.ops, n, n+1)
			m.spare = append(m.spare, p)
			return p.seq, true
		}
	}
	return 0, false
}

// done reports whether all slots of an operation are free.
func (m *Member) done(p *op) bool {
	for i := p.low; i < p.low+p.width; i++ {
		if m.before(p, i) {
			return false
		}
	}
	return !m.before(p, 0)
}

// before reports whether a slot of an operation in a stripe is not free yet.
func (m *Member) before(p *op, stripe int) bool {
	return p.begin[stripe] != p.end[stripe] && wire.Before(m.stripes[stripe].base, p.end[stripe])
}

// Idle reports whether the node owes nothing in a stripe.
func (m *Member) Idle(stripe int) bool { return m.stripes[stripe].base == m.stripes[stripe].next }

// Oldest returns how far the oldest operation in flight has come; nothing moves where there is none.
func (m *Member) Oldest() (at collective.Progress) {
	if len(m.ops) == 0 {
		return at
	}
	p := m.ops[0]
	at.Whole = true
	for i := range m.stripes {
		s := &m.stripes[i]
		own := p.begin[i] + uint32(p.seek(i, 0, m.rank))
		at.Moving = at.Moving || own != p.end[i] && (wire.Before(own, s.have) || s.held.Count() > 0)
		at.Whole = at.Whole && !wire.Before(s.have, p.end[i])
		at.Sending = at.Sending || wire.Before(s.next, p.end[i])
	}
	return at
}

// Moved returns another number each time that results have come or contributions have gone for the first time.
func (m *Member) Moved() (n uint64) {
	for i := range m.stripes {
		s := &m.stripes[i]
		n += uint64(s.have) + uint64(s.next) + uint64(s.held.Count())
	}
	return n
}

// Held returns which bytes of this rank's shard of an operation in flight hold
// the result already, in order and without touching ranges.
func (m *Member) Held(seq uint32) []collective.Range {
	var held []collective.Range
	for _, p := range m.ops {
		if p.seq != seq {
			continue
		}
		for i := range m.stripes {
			s := &m.stripes[i]
			for n := p.seek(i, 0, m.rank); n < p.slots(i); n = p.seek(i, n+1, m.rank) {
				slot := p.begin[i] + uint32(n)
				if wire.Before(slot, s.have) || wire.Before(slot, s.next) && s.held.Has(s.index(slot)) {
					c := p.layout.at(i, n)
					held = append(held, collective.Range{From: c.offset, To: c.offset + c.bytes})
				}
			}
		}
	}
	slices.SortFunc(held, func(a, b collective.Range) int { return a.From - b.From })
	merged := held[:0]
	for _, r := range held {
		if n := len(merged); n > 0 && merged[n-1].To == r.From {
			merged[n-1].To = r.To
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// Resent returns how many contributions were sent more than once, and how many polls.
func (m *Member) Resent() (contributions, polls uint64) {
	for i := range m.stripes {
		contributions += m.stripes[i].resent
		polls += m.stripes[i].polls
	}
	return contributions, polls
}
