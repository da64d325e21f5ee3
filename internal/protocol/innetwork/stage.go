package innetwork

import (
	"errors"
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Up is the member number of the parent.
const Up = -1

// reorderSlots is how many later contributions of a member are read before a missing one counts as lost. A flow between
// two sockets is seldom reordered, and a contribution that is sent again in error changes nothing.
const reorderSlots = 1

// StageConfig says what a node needs to know about a stripe of a job.
type StageConfig struct {
	Terms
	Stripe int
	// Members is how many contribute at this node. Their numbers are the
	// order in which Reproducible sums: ranks in rank order, a node below
	// where its lowest rank would be.
	Members int
	// Owner tells by rank of the job through which member the rank is
	// reached; -1: not through this node.
	Owner []int
	// Reproducible keeps all contributions and reduces them in the members'
	// order: without a tree the bits are those of reduce.Fold in the order of reduce.InOrder.
	// Otherwise they are added as they arrive, in less memory.
	Reproducible bool
	Parent       bool // there is one, and this node's number there is Number
	Number       int
	Memory       []byte // MemoryFor(c) bytes
	// Timeout is for how long polls of a member may show that the same datagram has not arrived
	// before the job ends with a PathError; 0: for ever.
	Timeout Time
}

// MemoryFor returns how many bytes of slot memory a stage takes.
func MemoryFor(c *StageConfig) int { return c.Slots * c.areas() * c.area() }

// areas is how many contributions a slot keeps.
func (c *StageConfig) areas() int {
	if c.Reproducible {
		return c.Members
	}
	return 1
}

// area is the room for one, in bytes. Reproducible without a tree keeps them as they came.
func (c *StageConfig) area() int {
	if c.Reproducible {
		return c.Chunk
	}
	return c.accumulators()
}

// StageStats count what a stage did.
type StageStats struct {
	Slots         uint64 // reduced
	Contributions uint64 // taken, kept ones included
	SummedBytes   uint64 // payload of them
	Duplicates    uint64 // contributions that were there already
	Stale         uint64 // contributions to slots that are free, or out of the window
	Malformed     uint64 // datagrams that no member of this job can mean
	Results       uint64 // sent down, again included
	Again         uint64 // of them sent more than once
	Gaps          uint64 // gaps that were reported
	Polls         uint64 // polls that were answered
}

// Add adds another stage's counters.
func (s *StageStats) Add(o StageStats) {
	s.Slots += o.Slots
	s.Contributions += o.Contributions
	s.SummedBytes += o.SummedBytes
	s.Duplicates += o.Duplicates
	s.Stale += o.Stale
	s.Malformed += o.Malformed
	s.Results += o.Results
	s.Again += o.Again
	s.Gaps += o.Gaps
	s.Polls += o.Polls
}

// Stage is a node's side of one stripe of a job. It owns the slots.
type Stage struct {
	cfg       StageConfig
	slots     []slot
	words     int      // of a slot's bitmap
	bits      []uint64 // contributions, words a slot
	base      uint32   // all slots below are free
	top       uint32   // slots from here on are untouched
	results   int      // slots that have one
	announced uint32   // base when allowances were last considered
	quarter   uint32   // of what a member may have under way
	members   []member
	alone     []int // by rank: the member that stands for it alone, or -1
	due       fifo  // members with an allowance that is due
	ready     fifo  // slots with a result to be sent
	up        *parentLink
	sources   [][]byte // room for those of a slot
	missing   slotBits
	err       error
	stats     StageStats
	past      past // nothing without the build tag invariants
}

// slot is a place where contributions meet.
type slot struct {
	head     wire.Slot // of the first contribution
	elements int
	count    int  // contributions
	summed   int  // of them that are not kept by the owner
	complete bool // all are there and reduced
	result   bool // what lies in the first area is the final result
	queued   bool // in ready
	sent     bool // the result was sent before
	asked    bool // since then a poll has asked for it
	repeats  int  // how often it was sent again
	sentAt   Time // when it was sent last
}

// member is what a stage keeps of a contributor.
type member struct {
	have    uint32 // it holds all results for it in slots below
	seen    uint32 // slots below were seen, or are lost
	scan    uint32 // gaps below were reported
	whole   uint32 // it has contributed to all slots below
	granted uint32 // limit
	from    uint32 // missing contributions to report, from ... to
	to      uint32
	owed    bool    // it lacks results that were sent, to the best of our knowledge
	taken   uint32  // its contributions, counted
	up      overdue // of its contributions
	down    overdue // of the results for it
	isDue   bool
}

// check returns an error if the configuration is wrong. It is checked since members and the parent send a part.
func (c *StageConfig) check() error {
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case c.Stripe < 0 || c.Stripe >= c.Stripes:
		return fmt.Errorf("innetwork: stripe %d of %d", c.Stripe, c.Stripes)
	case c.Members < 1 || c.Members > c.Ranks:
		return fmt.Errorf("innetwork: %d members for %d ranks: want 1 to %d", c.Members, c.Ranks, c.Ranks)
	case len(c.Owner) != c.Ranks:
		return fmt.Errorf("innetwork: %d owners for %d ranks", len(c.Owner), c.Ranks)
	case c.Parent && (!c.Wide || c.Cutoff <= 0):
		return errors.New("innetwork: a switch with a parent needs wide slots and a cutoff")
	case len(c.Memory) < MemoryFor(c):
		return errNoMemory
	}
	for r, m := range c.Owner {
		if m < -1 || m >= c.Members || m == -1 && !c.Parent {
			return fmt.Errorf("innetwork: rank %d is reached through member %d of %d", r, m, c.Members)
		}
	}
	return nil
}

// NewStage returns the state of a stripe, or an error if the configuration is wrong.
func NewStage(c StageConfig) (*Stage, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Stage{
		cfg: c, slots: make([]slot, c.Slots), words: (c.Members + 63) / 64,
		base: c.First, top: c.First, announced: c.First, quarter: max(1, c.allowance()/4),
		members: make([]member, c.Members), sources: make([][]byte, 0, c.Members),
		due: newFifo(c.Members), ready: newFifo(c.Slots),
	}
	s.bits = make([]uint64, c.Slots*s.words)
	s.alone = c.alone()
	for i := range s.members {
		m := &s.members[i]
		m.have, m.seen, m.scan, m.whole, m.granted = c.First, c.First, c.First, c.First, c.First+c.allowance()
	}
	if c.Parent {
		s.up = newParentLink(&s.cfg)
	}
	return s, nil
}

// alone returns by rank the member that stands for this rank and no other, or -1.
func (c *StageConfig) alone() []int {
	ranks := make([]int, c.Members)
	for _, m := range c.Owner {
		if m >= 0 {
			ranks[m]++
		}
	}
	alone := make([]int, len(c.Owner))
	for r, m := range c.Owner {
		if alone[r] = m; m >= 0 && ranks[m] > 1 {
			alone[r] = -1
		}
	}
	return alone
}

// keeper returns the member that keeps its contribution to a slot, or -1: the
// slot's owner, or a node below which there is nobody else.
func (s *Stage) keeper(h *wire.Slot) int {
	if !s.cfg.keeps(reduce.Type(h.Type)) {
		return -1
	}
	return s.alone[h.Owner]
}

func (s *Stage) index(n uint32) int { return int(n % uint32(len(s.slots))) }

// inWindow reports whether a slot is one of those held now.
func (s *Stage) inWindow(n uint32) bool { return n-s.base < uint32(len(s.slots)) }

// meant reports whether a datagram is of this kind, in this stripe of this job, and from or for that member.
func (s *Stage) meant(h *wire.Slot, kind wire.SlotKind, member int) bool {
	return h.Kind == kind && h.Job == s.cfg.Job && int(h.Stripe) == s.cfg.Stripe && int(h.Member) == member
}

// has reports whether a member has contributed to the slot at an index.
func (s *Stage) has(i, member int) bool {
	return s.bits[i*s.words+member>>6]&(1<<(member&63)) != 0
}

// area is where a member's contribution to the slot at an index lies.
func (s *Stage) area(i, member int) []byte {
	size := s.cfg.area()
	return s.cfg.Memory[(i*s.cfg.areas()+member)*size:][:size:size]
}

// Expect returns where the payload of a member's next contribution may be
// received, or nil if it has no place of its own.
func (s *Stage) Expect(member int) []byte {
	n := s.members[member].seen
	if !s.cfg.Reproducible || s.cfg.Wide || !s.inWindow(n) {
		return nil
	}
	return s.area(s.index(n), member)
}

// Contribute takes a contribution. payload may lie where Expect said; it is
// not kept otherwise.
func (s *Stage) Contribute(member int, h *wire.Slot, payload []byte) {
	size, ok := s.check(member, h, payload)
	if !ok {
		s.stats.Malformed++
		return
	}
	if !s.enter(member, h, len(payload)/size) {
		return
	}
	i := s.index(h.Slot)
	s.slots[i].summed++
	s.stats.SummedBytes += uint64(len(payload))
	s.keep(i, member, h, payload)
	s.entered(member, h.Slot)
	s.verify()
}

// Kept takes that a member keeps its contributions to some slots.
func (s *Stage) Kept(member int, h *wire.Slot, k *wire.SlotKept) {
	step, ok := s.checkKept(member, h, k)
	if !ok {
		s.stats.Malformed++
		return
	}
	one, left := *h, int(k.Bytes)
	for i := range k.Slots {
		one.Slot, one.Last = h.Slot+i, h.Last && i == k.Slots-1
		if s.enter(member, &one, min(step, left)/reduce.Type(h.Type).Size()) {
			s.entered(member, one.Slot)
		}
		left -= step
	}
	s.verify()
}

// enter marks that a member contributes so many elements to a slot, and reports whether that is news.
func (s *Stage) enter(member int, h *wire.Slot, elements int) bool {
	if s.err != nil {
		return false
	}
	if !s.inWindow(h.Slot) {
		s.stats.Stale++
		return false
	}
	i := s.index(h.Slot)
	if s.has(i, member) {
		s.stats.Duplicates++
		return false
	}
	sl := &s.slots[i]
	if sl.count == 0 {
		sl.head, sl.elements = *h, elements
		sl.head.Member = uint16(member)
	} else if !same(&sl.head, h) || sl.elements != elements {
		s.err = s.mismatch(sl, member, h, elements)
		return false
	}
	s.bits[i*s.words+member>>6] |= 1 << (member & 63)
	sl.count++
	s.members[member].taken++
	s.stats.Contributions++
	s.top = wire.Later(s.top, h.Slot+1)
	return true
}

// entered goes on once what a member contributes to a slot is there.
func (s *Stage) entered(member int, n uint32) {
	s.saw(member, n)
	if i := s.index(n); s.slots[i].count == s.cfg.Members {
		s.reduce(i)
	}
}

// check reports whether a datagram can be a contribution of this job, and the
// size of its elements.
func (s *Stage) check(member int, h *wire.Slot, payload []byte) (size int, ok bool) {
	if !s.plausible(member, h, wire.Contribution) || s.keeper(h) == member {
		return 0, false
	}
	t := reduce.Type(h.Type)
	size = t.Size()
	if h.Wide {
		size = t.Accumulator().Size()
	}
	n := len(payload)
	return size, n > 0 && n%size == 0 && n <= s.cfg.Chunk && n/size*t.Accumulator().Size() <= s.cfg.accumulators()
}

// checkKept reports whether a Kept datagram is possible in this job, and returns the bytes of a full chunk.
func (s *Stage) checkKept(member int, h *wire.Slot, k *wire.SlotKept) (step int, ok bool) {
	if !s.plausible(member, h, wire.Kept) || s.keeper(h) != member || k.Slots < 1 || int(k.Slots) > len(s.slots) {
		return 0, false
	}
	size, bytes := reduce.Type(h.Type).Size(), int(k.Bytes)
	step = s.cfg.chunkElements(reduce.Type(h.Type)) * size
	return step, bytes%size == 0 && bytes > (int(k.Slots)-1)*step && bytes <= int(k.Slots)*step
}

// plausible reports whether a header can be of a contribution of such a kind.
func (s *Stage) plausible(member int, h *wire.Slot, kind wire.SlotKind) bool {
	return s.meant(h, kind, member) && int(h.Owner) < len(s.cfg.Owner) && (!h.Wide || s.cfg.Wide) &&
		reduce.Op(h.Op).Takes(reduce.Type(h.Type))
}

// same reports whether two contributions are of the same operation.
func same(a, b *wire.Slot) bool {
	return a.Type == b.Type && a.Op == b.Op && a.Owner == b.Owner && a.Shape == b.Shape && a.Last == b.Last &&
		(a.Factor == b.Factor || math.IsNaN(a.Factor) && math.IsNaN(b.Factor))
}

// keep puts a contribution into its slot.
func (s *Stage) keep(i, member int, h *wire.Slot, payload []byte) {
	t, op := reduce.Type(h.Type), reduce.Op(h.Op)
	sl := &s.slots[i]
	if s.cfg.Reproducible && !s.cfg.Wide {
		if to := s.area(i, member)[:len(payload)]; &to[0] != &payload[0] {
			copy(to, payload)
		}
		return
	}
	accumulated := sl.elements * t.Accumulator().Size()
	if !s.cfg.Reproducible {
		member = 0
	}
	switch to := s.area(i, member)[:accumulated]; {
	case s.cfg.Reproducible || sl.summed == 1:
		if h.Wide {
			copy(to, payload)
		} else {
			reduce.Begin(to, payload, t, op, h.Factor)
		}
	case h.Wide:
		reduce.Combine(to, payload, t, op)
	default:
		reduce.CombineNext(to, payload, t, op, h.Factor)
	}
}

// reduce makes one of all contributions to the slot at an index, in the first area. At
// the root it is the result, or what the owner completes by its own.
func (s *Stage) reduce(i int) {
	sl := &s.slots[i]
	sl.complete = true
	s.stats.Slots++
	if s.cfg.Reproducible && sl.summed > 0 {
		s.fold(i)
	}
	if s.up != nil {
		s.up.extend(s)
		return
	}
	t, op := reduce.Type(sl.head.Type), reduce.Op(sl.head.Op)
	if (s.cfg.Wide || !s.cfg.Reproducible) && !s.cfg.keeps(t) {
		first := s.area(i, 0)
		reduce.Finish(first[:sl.elements*t.Size()], first[:sl.elements*t.Accumulator().Size()], t, op, s.cfg.Ranks)
	}
	s.resulted(sl)
}

// fold reduces what members have contributed to the slot at an index, in their order.
func (s *Stage) fold(i int) {
	sl := &s.slots[i]
	t, op := reduce.Type(sl.head.Type), reduce.Op(sl.head.Op)
	size, keeper := sl.elements*t.Size(), s.keeper(&sl.head)
	if s.cfg.Wide {
		size = sl.elements * t.Accumulator().Size()
	}
	srcs := s.sources[:0]
	for m := range s.cfg.Members {
		if m != keeper {
			srcs = append(srcs, s.area(i, m)[:size])
		}
	}
	first := s.area(i, 0)[:size]
	switch {
	case s.cfg.Wide:
		if keeper == 0 {
			copy(first, srcs[0])
		}
		for _, src := range srcs[1:] {
			reduce.Combine(first, src, t, op)
		}
	case s.cfg.keeps(t):
		reduce.FoldOthers(first, srcs, t, op, sl.head.Factor)
	default:
		reduce.Fold(first, srcs, t, op, sl.head.Factor)
	}
}

// resulted notes that the first area of a slot holds its result.
func (s *Stage) resulted(sl *slot) {
	sl.result = true
	s.results++
	s.queue(sl.head.Slot)
}

// queue lets the result of a slot be sent.
func (s *Stage) queue(n uint32) {
	if sl := &s.slots[s.index(n)]; !sl.queued {
		sl.queued = true
		s.ready.push(n)
	}
}

func (s *Stage) mismatch(sl *slot, member int, h *wire.Slot, elements int) error {
	return &MemberMismatchError{
		Members: [2]int{int(sl.head.Member), member}, What: [2]string{describe(&sl.head, sl.elements), describe(h, elements)},
	}
}

// Err returns why the job cannot go on, or nil.
func (s *Stage) Err() error { return s.err }

// Stats returns the counters.
func (s *Stage) Stats() StageStats { return s.stats }

// InUse returns how many slots hold something.
func (s *Stage) InUse() int { return int(s.top - s.base) }
