package multicast

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// gap is a stretch of chunks of a shard that seem lost: later ones have
// arrived. It is asked for when due, unless the chunks arrive before.
type gap struct {
	shard, from, to int
	due             Time
}

// maxGaps bounds the list; what is beyond, when those that have closed are
// struck off, is asked for at once.
const maxGaps = 256

// suspect notes that chunks [from, to) of a shard seem lost.
func (c *Comm) suspect(p *op, shard, from, to int) {
	if p.state != active {
		return
	}
	for i := range p.gaps { // each chunk of a later operation shows the same
		if g := &p.gaps[i]; g.shard == shard && g.from == from && g.to == to {
			return
		}
	}
	if len(p.gaps) == maxGaps {
		p.gaps = slices.DeleteFunc(p.gaps, func(g gap) bool {
			base := g.shard * p.shape.chunks
			return p.have.NextClear(base+g.from, base+g.to) == base+g.to
		})
	}
	if c.cfg.Reorder == 0 || len(p.gaps) == maxGaps {
		c.ask(p, shard, from, to, true, false)
		return
	}
	due := c.now + c.pace.reorder
	if n := len(p.gaps); n > 0 {
		due = max(due, p.gaps[n-1].due) // they are in order, and reorder may have shrunk
	}
	p.gaps = append(p.gaps, gap{shard, from, to, due})
}

// overtaken looks for what a chunk of shard s shows to be lost elsewhere: all
// that earlier roots of the chain have not delivered, since they had finished
// before; and, from the same root, all of older eager operations.
func (c *Comm) overtaken(p *op, s int) {
	if !p.eager {
		if p.state == active && p.shape.coll != wire.Broadcast {
			c.chainReached(p, s)
		}
		return
	}
	if c.first == p.seq {
		return
	}
	root := p.shape.rootOf(s)
	c.activeOps(func(q *op) bool {
		if !before(q.seq, p.seq) {
			return false
		}
		if qs := q.shape.shard(root); q.eager && qs >= 0 && int(q.seen[qs].count) < q.shape.chunks {
			c.suspect(q, qs, 0, q.shape.chunks)
		}
		return true
	})
}

// chainReached notes that a root of a chain sends, so that all before it in
// the chain have sent everything.
func (c *Comm) chainReached(p *op, root int) {
	ch := c.chains.Of(root)
	for s := max(p.reached[ch], c.chains.Head(ch)); s < root; s++ {
		if int(p.seen[s].count) < p.shape.chunks {
			c.suspect(p, s, 0, p.shape.chunks)
		}
	}
	p.reached[ch] = max(p.reached[ch], root)
}

// rightIsDone takes the right neighbour's final handshake. If it has
// everything, all roots have sent everything.
func (c *Comm) rightIsDone(p *op) {
	p.rightDone = true
	c.dropWishes(p)
	p.moved = c.now
	if p.cutoff != 0 {
		// Its word may have overtaken datagrams that wait in this rank's
		// queue, so give those the time that a scheduler may take.
		p.cutoff = min(p.cutoff, c.now+c.pace.alpha)
	}
}

// ask fetches the missing chunks among [from, to) of a shard from the left
// neighbour, and only those. A certain request is for chunks that are known to
// have been sent; the other kind is a guess after a silence. Chunks that were asked
// for before are left out, unless again is set.
func (c *Comm) ask(p *op, shard, from, to int, certain, again bool) {
	p.guessed = p.guessed || !certain
	base := shard * p.shape.chunks
	missing := func(i int) bool {
		return !p.have.Has(base+i) && (again || !p.asked.Has(base+i))
	}
	for i := from; i < to; {
		i = p.have.NextClear(base+i, base+to) - base
		for i < to && !missing(i) {
			i++
		}
		j := i
		for ; j < to && missing(j); j++ {
			if p.asked.Set(base + j) {
				c.stats.Lost++
			}
		}
		if j == i {
			return
		}
		m := wire.Control{
			Kind: wire.Fetch, Collective: p.shape.coll, Root: uint16(p.shape.rootOf(shard)), Seq: p.seq, //nolint:gosec // a rank
			PSN: uint32(i), Count: uint32(j - i), Bytes: uint64(p.shape.bytes), //nolint:gosec // bounded by Post
		}
		if certain {
			m.Round = 1
		}
		c.send(c.topo.Left(), m)
		i = j
	}
}

// fetch takes the right neighbour's request. What this rank holds is answered;
// what it lacks is remembered, and asked for further left.
func (c *Comm) fetch(p *op, from int, m *wire.Control) {
	theirs := shape{coll: m.Collective, bytes: int(m.Bytes)} //nolint:gosec // compared only
	if m.Collective == wire.Broadcast {
		theirs.root = int(m.Root)
	}
	if p.state != early && int(m.Root) < c.cfg.Size && (p.shape.mismatch(&theirs) || p.shape.bytes != theirs.bytes) {
		c.disagree(p.seq, c.cfg.Rank, describe(&p.shape), from, describe(&theirs))
		return
	}
	if int(m.Root) >= c.cfg.Size || p.shape.mismatch(&theirs) || uint64(m.PSN)+uint64(m.Count) > uint64(p.shape.chunks) { //nolint:gosec // not negative
		c.stats.Dropped++
		return
	}
	s, certain, own := p.shape.shard(int(m.Root)), m.Round == 1, int(m.Root) == c.cfg.Rank
	first, end := int(m.PSN), int(m.PSN)+int(m.Count)
	if own {
		end = min(end, p.next) // the rest is still to be multicast
	}
	for i := first; i < end; i++ {
		bit := s*p.shape.chunks + i
		if p.wanted.Set(bit) && p.have.Has(bit) {
			c.owe(p, bit)
		}
		if certain || p.have.Has(bit) {
			p.guess.Clear(bit)
		} else {
			p.guess.Set(bit)
		}
	}
	if !own && p.state == active {
		c.ask(p, s, first, end, certain, false)
	}
}

// answered updates the wishes for a chunk that has just arrived.
func (c *Comm) answered(p *op, bit int, repair bool) {
	if repair {
		c.stats.Repaired++
		p.repaired = true
		c.judgeCutoff(p, true)
	} else if p.asked.Count() > 0 && p.asked.Clear(bit) {
		c.stats.Lost-- // it was only late
		c.spurious(p)
	}
	if p.wanted.Count() == 0 || !p.wanted.Has(bit) {
		return
	}
	if p.guess.Clear(bit) && !repair {
		p.wanted.Clear(bit) // the multicast that brought it here answers the guess
		return
	}
	c.owe(p, bit)
}

// owe notes a chunk that the right neighbour wants and this rank has.
func (c *Comm) owe(p *op, bit int) {
	if c.repairs == 0 || before(p.seq, c.repair) {
		c.repair = p.seq
	}
	if p.repairs == 0 || bit < p.repairFrom {
		p.repairFrom = bit
	}
	c.repairs++
	p.repairs++
}

// duplicate takes note of a chunk that this rank has already. If one copy came by
// repair and the other by multicast, the request was spurious.
func (c *Comm) duplicate(p *op, bit int, repair bool) {
	asked := p.asked.Clear(bit)
	if asked && !repair {
		c.stats.Lost--
	}
	if asked || repair {
		c.spurious(p)
		c.judgeCutoff(p, false)
	}
}

// judgeCutoff lets the cutoff learn, once for each time that it has passed.
func (c *Comm) judgeCutoff(p *op, right bool) {
	if p.alarm != 0 {
		c.pace.learn(right, c.now-p.alarm)
		p.alarm = 0
	}
}

// spurious takes note of a request that multicast answers after all. Unless one of
// this operation was a guess, it was for a gap, in which the chunk was overtaken.
func (c *Comm) spurious(p *op) {
	if p.guessed {
		return
	}
	p.spurious = true
	if more := c.pace.overtake(c.now); more > 0 {
		c.activeOps(func(q *op) bool { // what is open is of the same kind
			for i := range q.gaps {
				q.gaps[i].due += more
			}
			return true
		})
	}
}

// dropWishes forgets what the right neighbour asked for.
func (c *Comm) dropWishes(p *op) {
	c.repairs -= p.repairs
	p.repairs = 0
	p.wanted.Reset(p.wanted.Len())
}

// Repair names a chunk for the right neighbour.
type Repair struct {
	To      int
	Message wire.Control
	Place   Place // where its bytes are
}

// NextRepair returns a chunk that the right neighbour has asked for and this
// rank holds, and whether there is one. Once it is on its way: Repaired.
func (c *Comm) NextRepair() (Repair, bool) {
	if c.repairs == 0 || c.err != nil {
		return Repair{}, false
	}
	p := &c.ring[c.repair%slots]
	for p.repairs == 0 {
		c.repair++
		p = &c.ring[c.repair%slots]
	}
	i, n := p.repairFrom, p.wanted.Len()
	for i = p.wanted.NextSet(i, n); !p.have.Has(i); {
		i = p.wanted.NextSet(i+1, n)
	}
	p.repairFrom = i
	return c.repairOf(p, i), true
}

func (c *Comm) repairOf(p *op, bit int) Repair {
	s, psn := bit/p.shape.chunks, bit%p.shape.chunks
	r := Repair{
		To: c.topo.Right(),
		Message: wire.Control{
			Kind: wire.Repair, Collective: p.shape.coll, Root: uint16(p.shape.rootOf(s)), Seq: p.seq, //nolint:gosec // a rank
			PSN: uint32(psn), Count: uint32(p.shape.bytes), Bytes: uint64(p.shape.length(psn, c.cfg.Chunk)), //nolint:gosec // as on the wire
		},
		Place: Place{Seq: p.seq, Offset: p.shape.offset(s, psn, c.cfg.Chunk), Arena: p.eager},
	}
	if p.eager {
		r.Place.Offset += int(p.arena)
	}
	return r
}

// Repaired says that the chunk that NextRepair returned is on its way.
func (c *Comm) Repaired(r *Repair) {
	p := &c.ring[r.Message.Seq%slots]
	p.moved = c.now
	if p.wanted.Clear(p.shape.shard(int(r.Message.Root))*p.shape.chunks + int(r.Message.PSN)) {
		c.repairs--
		p.repairs--
	}
}

// arm sets the moment after which silence counts as loss: the time that a
// window takes at the measured rate, and alpha (Khalilov et al., SC24, III-C).
func (c *Comm) arm(p *op) {
	bytes := c.cfg.Window * c.cfg.Chunk
	if c.pace.rate == 0 { // what is assumed may be far too slow
		bytes = min(bytes, p.shape.total())
	}
	c.armFor(p, bytes)
}

// armFor does so when that many bytes may be on their way.
func (c *Comm) armFor(p *op, bytes int) {
	if c.cfg.Lossless || c.cfg.Size == 1 || p.full() || !p.open || before(c.opened, p.opener) {
		p.cutoff = 0
		return
	}
	p.cutoff = c.now + min(c.pace.cutoff(bytes)<<min(p.tries, 8), max(maxCutoff, c.cfg.Cutoff))
}

// Deadline returns when Expire wants to be called, and whether it does.
func (c *Comm) Deadline() (Time, bool) {
	var at Time
	c.activeOps(func(p *op) bool {
		if p.cutoff != 0 && (at == 0 || p.cutoff < at) {
			at = p.cutoff
		}
		if len(p.gaps) > 0 && (at == 0 || p.gaps[0].due < at) {
			at = p.gaps[0].due
		}
		return true
	})
	return at, at != 0
}

// Expire asks for what is overdue.
func (c *Comm) Expire(now Time) {
	c.tick(now)
	if c.err != nil {
		return
	}
	behind := false // an older operation is incomplete, whose roots go first
	c.activeOps(func(p *op) bool {
		n := 0
		for n < len(p.gaps) && p.gaps[n].due <= c.now {
			c.ask(p, p.gaps[n].shard, p.gaps[n].from, p.gaps[n].to, true, false)
			n++
		}
		p.gaps = append(p.gaps[:0], p.gaps[n:]...)
		if p.cutoff != 0 && p.cutoff <= c.now {
			if p.eager || !behind {
				c.cutOff(p)
				p.silent = true
				if p.alarm == 0 {
					p.alarm = c.now
				}
				p.tries++
			}
			c.arm(p)
		}
		behind = behind || !p.eager && !p.full()
		return true
	})
}

// cutOff asks for what the roots in turn may have sent by now: with credits,
// not more than a window beyond what has arrived.
func (c *Comm) cutOff(p *op) {
	if p.eager || p.shape.coll == wire.Broadcast {
		for s := range p.shape.shards {
			c.ask(p, s, 0, c.horizon(p, s), false, true)
		}
		return
	}
	for ch := range c.chains.M {
		for s := c.chains.Head(ch); s < c.chains.Head(ch+1); s++ {
			if int(p.seen[s].count) < p.shape.chunks {
				c.ask(p, s, 0, c.horizon(p, s), false, true)
				break
			}
		}
	}
}

func (c *Comm) horizon(p *op, s int) int {
	if p.eager || p.rightDone {
		return p.shape.chunks
	}
	return min(c.limit(p, s), p.shape.chunks)
}

// pace measures how fast chunks come, for the cutoff.
type pace struct {
	rate  float64 // bytes a second, 0: not measured yet
	least time.Duration
	alpha time.Duration
	// reorder is how long a gap may be a chunk overtaken by another, order at
	// least, and widened when it last grew.
	reorder, order time.Duration
	widened        Time
}

const (
	// maxAlpha bounds the allowance that false alarms can build up.
	maxAlpha = 200 * time.Millisecond
	// maxReorder bounds how long a gap goes unasked for.
	maxReorder = 5 * time.Millisecond
	// maxCutoff bounds the time between two requests for the same chunks: a
	// rank that was slow for long is noticed soon after.
	maxCutoff = time.Second
	// slowRate is taken for the rate until it has been measured, in bytes a
	// second: requests that come too early load a slow link twice.
	slowRate = 100e6 / 8
)

// measure takes the size of a received operation and the time that it took.
func (p *pace) measure(bytes int, took time.Duration) {
	if took <= 0 {
		return
	}
	r := float64(bytes) / took.Seconds()
	if p.rate == 0 {
		p.rate = r
	}
	p.rate += (r - p.rate) / 8
}

// learn adapts to a request after a silence: it was right if the chunk came by
// repair alone, and spurious if it came by multicast as well, by up to the
// time since. That may have other reasons too, so alpha no more than doubles.
func (p *pace) learn(right bool, since time.Duration) {
	if right {
		p.alpha = max(p.least, p.alpha-p.alpha/8)
	} else {
		p.alpha = min(p.alpha+min(max(p.alpha/4, since), p.alpha), max(maxAlpha, p.least))
	}
}

// overtake learns from a chunk that was asked for in vain: paths differ by more
// than was thought, as those of several trees do while their queues are long.
// Many chunks tell of one such difference, so reorder doubles once in its time.
// It returns by how much reorder has grown.
func (p *pace) overtake(now Time) (more time.Duration) {
	if p.reorder > 0 && now >= p.widened+p.reorder {
		more = min(p.reorder, max(0, maxReorder-p.reorder))
		p.reorder, p.widened = p.reorder+more, now
	}
	return more
}

// kept learns from an operation in which no chunk was asked for in vain.
func (p *pace) kept() { p.reorder = max(p.order, p.reorder-p.reorder/8) }

// cutoff returns how long a silence may last when bytes are under way. The time that those
// take is bounded: very small operations that had to wait make for a rate of next to nothing.
func (p *pace) cutoff(bytes int) time.Duration {
	rate := p.rate
	if rate == 0 {
		rate = slowRate
	}
	return p.alpha + time.Duration(min(float64(bytes)/rate*float64(time.Second), float64(maxCutoff)))
}
