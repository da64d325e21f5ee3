//go:build invariants

package multicast

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// With the build tag invariants, every call of a Comm ends in a check of its laws, and panics where one does not hold.
// Cheap checks are made every time; checks that look at every shard and bitmap are made for one operation every so many
// calls, and for each before it is forgotten.

// verifyEvery is how many calls there are to a thorough check.
var verifyEvery = 16

// past is what invariants need to know of the time before.
type past struct {
	calls int
	ops   [maxKnown]struct {
		seq   uint32
		known bool
		sums
	}
}

// sums are counts of an operation that never fall while it is known.
type sums struct{ rounds, next, have, taken, granted, child, reported int }

func sumsOf(p *op) sums {
	s := sums{rounds: int(p.barrier.received), next: p.sender.next, have: p.receiver.have.Count()}
	for ch := range p.credit.taken {
		s.taken += p.credit.taken[ch]
		s.granted += p.credit.granted[ch]
	}
	for _, limit := range p.credit.child {
		s.child += int(limit)
	}
	for _, limit := range p.credit.reported {
		s.reported += int(limit)
	}
	return s
}

// fellFrom reports whether one of them is less than it was.
func (s sums) fellFrom(was sums) bool {
	return s.rounds&was.rounds != was.rounds || s.next < was.next || s.have < was.have || s.taken < was.taken ||
		s.granted < was.granted || s.child < was.child || s.reported < was.reported
}

// verify panics if an invariant does not hold.
func (c *Comm) verify() {
	c.must(c.whatIsWrong())
	if c.past.calls++; c.past.calls%verifyEvery != 0 {
		return
	}
	known := c.ops.begun - c.ops.oldest
	c.verifyBacklog()
	for i := range known {
		// One of them, in turns; all if there is time.
		if verifyEvery == 1 || uint32(c.past.calls/verifyEvery)%known == i {
			c.verifyLast(c.ops.at(c.ops.oldest + i))
		}
	}
}

// verifyLast panics if an invariant of an operation does not hold. It takes its time.
func (c *Comm) verifyLast(p *op) {
	if p.state == free || !p.known() {
		return
	}
	c.must(p.thorough(p.seq))
	if p.state == early {
		return // an operation that a stranger has begun may be forgotten
	}
	was := &c.past.ops[p.seq%maxKnown]
	now := sumsOf(p)
	if was.known && was.seq == p.seq && now.fellFrom(was.sums) {
		c.must(fmt.Errorf("operation %d: one of %+v fell to %+v", p.seq, was.sums, now))
	}
	was.known, was.seq, was.sums = true, p.seq, now
}

func (c *Comm) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("multicast: rank %d of %d: %v", c.cfg.Rank, c.cfg.Size, err))
	}
}

// law is a condition that must hold, and the error if it does not.
type law struct {
	holds bool
	wrong string
}

// first returns the error of the first of laws that does not hold, or nil.
func first(laws ...law) error {
	for i := range laws {
		if !laws[i].holds {
			return errors.New(laws[i].wrong)
		}
	}
	return nil
}

// whatIsWrong makes the cheap checks.
func (c *Comm) whatIsWrong() error {
	t, e := &c.ops, &c.epoch
	if err := first(
		law{t.posted-t.first <= collective.MaxInFlight, "more than MaxInFlight are in flight"},
		law{t.first-t.oldest < maxKnown && t.begun-t.posted < maxKnown,
			"oldest, first, posted and begun are not in this order"},
		law{c.err != nil || t.first == t.posted || t.at(t.first).state == active, "the first is done"},
		law{!wire.Before(e.opener, e.opened), "a barrier is complete that was not posted"},
		law{e.ops <= epochOps && e.ops >= 0, "an epoch has too many operations"},
		law{c.cfg.Lossless || e.bytes >= 0 && e.bytes <= max(c.cfg.Arena, room(&shape{bytes: c.cfg.Eager, shards: 1})),
			"an epoch takes more than the arena"},
		law{e.chunks >= 0 && e.chunks <= max(c.cfg.EagerChunks, 0), "an epoch has too many chunks"},
		law{c.backlog.chunks >= 0, "less than nothing is owed"},
		law{c.relayed.own >= 0 && c.relayed.own <= relayAhead, "a root has more waiting to be relayed than it may"},
		law{c.out.closed == (c.err != nil), "what failed still sends"},
	); err != nil {
		return err
	}
	inFlight, waits := 0, false
	for p := t.front(); p != nil; p = t.after(p) {
		inFlight++
		if p.link.of != nil && !p.received() {
			if waits && p.link.admitted {
				return fmt.Errorf("operation %d is admitted before one that was posted earlier", p.seq)
			}
			waits = waits || !p.link.admitted
		}
		if err := c.components(p); err != nil {
			return fmt.Errorf("operation %d (%v): %w", p.seq, p.called(), err)
		}
	}
	return first(law{inFlight == c.inFlight, "as many are active as are counted"})
}

// components makes the cheap checks of an operation in flight.
func (c *Comm) components(p *op) error {
	b, s, t, rounds := &p.barrier, &p.sender, &p.timer, c.topo.Rounds()
	return first(
		law{p.known(), "it is posted and has no shape"},
		law{p.mode.window >= 0 && (p.mode.kind.inPlace() || p.mode.window == 0),
			"only large or serial operations have a window"},
		law{!p.mode.relay || p.mode.kind == large && p.mode.window == 0, "what all ranks relay has no window"},
		law{p.mode.kind != eager || p.slots == nil && p.stride == p.bytes,
			"what lies in the arena has gaps, or another order"},
		law{(p.mode.kind == eager) == (p.mode.arena != NotEager), "eager operations, and no others, lie in the arena"},
		law{b.open == (!p.mode.barrier || b.passed(rounds)), "its barrier is open when everybody is ready"},
		law{b.received>>rounds == 0, "its barrier received a round that does not exist"},
		law{b.next == 0 || b.entered && b.next <= rounds && b.receivedBefore(b.next-1), "its barrier sent a round too early"},
		law{s.next >= 0 && s.next <= p.chunks, "it sent more than its shard"},
		law{p.own >= 0 || s.done(&p.layout), "it sends another's shard"},
		law{p.mode.kind != serial || p.own < 0 || s.next == 0 || c.series[c.cfg.Rank].taken >= p.link.base+s.next,
			"it sent less of its series than of itself"},
		law{p.mode.kind != serial || p.own < 0 || s.next == 0 || s.done(&p.layout) ||
			c.series[c.cfg.Rank].taken == p.link.base+s.next, "what follows it in its series was sent before"},
		law{p.mode.window == 0 || p.own < 0 || s.relayed || s.next <= p.credit.room(&p.layout),
			"it sent more than there is credit for"},
		law{!t.armed() || !p.received() && p.mode.kind != reliable && c.started(p),
			"it waits for chunks that nobody has to send"},
		law{!p.handshake.sent || p.received(), "it said that it has all, and has not"},
		law{!p.handshake.sent || p.pulls.reading == 0, "it said that it is done, and reads"},
		law{!p.handshake.right || p.repairs.owed == 0 && p.repairs.wanted.Count() == 0, "it owes a neighbour that has all"},
		law{len(p.calls.early) == 0, "messages wait for it to be posted, which it is"},
	)
}

// thorough checks the rest of an operation.
func (p *op) thorough(seq uint32) error {
	r, q := &p.receiver, &p.repairs
	for i, b := range [...]*bitmap.Bitmap{&r.have, &p.fetch.asked, &q.wanted, &q.speculative, &p.pulls.offered} {
		name := [...]string{"have", "asked", "wanted", "speculative", "offered"}[i]
		if err := b.Verify(); err != nil {
			return fmt.Errorf("operation %d: %s: %w", seq, name, err)
		}
		if b.Len() != p.all() {
			return fmt.Errorf("operation %d: %s has %d bits for %d chunks", seq, name, b.Len(), p.all())
		}
	}
	for s := range p.shards {
		count, end := 0, 0
		for at, to := p.bit(s, 0), p.bit(s+1, 0); ; at = end {
			if at = r.have.NextSet(at, to); at == to {
				break
			}
			end = r.have.NextClear(at, to)
			count += end - at
		}
		if r.seen[s] != (seen{uint32(max(0, end-p.bit(s, 0))), uint32(count)}) {
			return fmt.Errorf("operation %d: of shard %d there are %d chunks up to %d, and counted %+v", seq, s, count,
				end-p.bit(s, 0), r.seen[s])
		}
	}
	owed := 0
	for bit := q.wanted.NextSet(0, p.all()); bit < p.all(); bit = q.wanted.NextSet(bit+1, p.all()) {
		here := r.have.Has(bit)
		if here {
			owed++
		}
		if here && (bit < q.from || q.speculative.Has(bit)) {
			return fmt.Errorf("operation %d: chunk %d is owed, but looked for from %d, or is speculative", seq, bit, q.from)
		}
	}
	for bit := q.speculative.NextSet(0, p.all()); bit < p.all(); bit = q.speculative.NextSet(bit+1, p.all()) {
		if !q.wanted.Has(bit) {
			return fmt.Errorf("operation %d: chunk %d is speculative and not wanted", seq, bit)
		}
	}
	if owed != q.owed {
		return fmt.Errorf("operation %d: %d chunks are owed, and counted %d", seq, owed, q.owed)
	}
	if err := p.loss.wrong(&p.layout); err != nil {
		return fmt.Errorf("operation %d: %w", seq, err)
	}
	if p.mode.window > 0 {
		if err := p.credit.wrong(&p.layout); err != nil {
			return fmt.Errorf("operation %d: %w", seq, err)
		}
	}
	return nil
}

func (o *loss) wrong(l *layout) error {
	for i, g := range o.gaps {
		if err := first(
			law{g.shard >= 0 && g.shard < l.shards && g.from >= 0 && g.from < g.to && g.to <= l.chunks, "it is not in a shard"},
			law{i == 0 || g.due >= o.gaps[i-1].due, "it falls due before the one noted before"},
			law{i < maxGaps, "it is one too many"},
		); err != nil {
			return fmt.Errorf("gap %+v: %w", g, err)
		}
	}
	for ch, shard := range o.reached {
		if shard != 0 && (shard < l.mode.chains.Head(ch) || shard >= l.mode.chains.Head(ch+1)) {
			return fmt.Errorf("chain %d has reached shard %d, which is of another", ch, shard)
		}
	}
	return nil
}

func (c *credit) wrong(l *layout) error {
	window := l.mode.window
	if int(c.step) < 1 || int(c.step) > window || c.floor < 1 || c.floor > window {
		return fmt.Errorf("step %d and floor %d; want 1 to the window, %d", c.step, c.floor, window)
	}
	for ch, taken := range c.taken {
		roots := l.mode.chains.Head(ch+1) - l.mode.chains.Head(ch)
		if taken < 0 || taken > roots*l.chunks || c.granted[ch] < 0 || c.granted[ch] > roots {
			return fmt.Errorf("chain %d of %d roots: %d chunks taken, %d roots granted", ch, roots, taken, c.granted[ch])
		}
	}
	for s := range l.shards {
		low := c.limit(l, s)
		for _, limit := range c.below(l, s) {
			if int(limit) > c.most(l) {
				return fmt.Errorf("shard %d: a child reported a limit of %d, beyond %d", s, limit, c.most(l))
			}
			low = min(low, int(limit))
		}
		if s != l.own && int(c.reported[s]) > low {
			return fmt.Errorf("shard %d: a limit of %d was reported, there is room up to %d", s, c.reported[s], low)
		}
	}
	return nil
}

// verifyBacklog panics unless the count of owed chunks is the sum over all operations.
func (c *Comm) verifyBacklog() {
	owed := 0
	for _, p := range c.ops.ops {
		if p == nil || p.state == free || p.repairs.owed == 0 {
			continue
		}
		owed += p.repairs.owed
		if wire.Before(p.seq, c.backlog.first) {
			c.must(fmt.Errorf("operation %d owes chunks, but is looked for from %d", p.seq, c.backlog.first))
		}
	}
	offers := 0
	for _, p := range c.ops.ops {
		if p != nil && p.state != free {
			offers += p.pulls.offers.len()
		}
	}
	if offers != c.offers {
		c.must(fmt.Errorf("%d offers are there, and counted %d", offers, c.offers))
	}
	if owed != c.backlog.chunks {
		c.must(fmt.Errorf("%d chunks are owed, and counted %d", owed, c.backlog.chunks))
	}
}
