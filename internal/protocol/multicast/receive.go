package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Place says where a chunk's payload belongs.
type Place struct {
	Seq    uint32
	Offset int  // in the arena, or in the operation's receive buffer
	Arena  bool // which of the two
}

// Hold reports whether a chunk of a lossless fabric has to wait there for this
// rank to post its operation.
func (c *Comm) Hold(h *wire.Data) bool {
	return c.err == nil && !before(h.Seq, c.posted)
}

// Place returns where the payload (n bytes) of a chunk goes, or false if it is
// to be dropped. The PSN alone gives the address, so order does not matter
// (Khalilov et al., SC24, III-B). It is called for chunks that have arrived, not on a guess: what is dropped
// is counted here, and a duplicate tells that a request for repair was spurious. Of a chunk that is
// not dropped nothing is recorded until Received, so a second Place before that answers the same.
func (c *Comm) Place(now Time, h *wire.Data, n int) (Place, bool) {
	c.tick(now)
	p, s, ok := c.find(h)
	if !ok || int(h.PSN) >= p.shape.chunks || n != p.shape.length(int(h.PSN), c.cfg.Chunk) {
		c.stats.Dropped++
		return Place{}, false
	}
	if bit := s*p.shape.chunks + int(h.PSN); p.have.Has(bit) {
		c.duplicate(p, bit, h.IsRepair())
		c.stats.Dropped++
		return Place{}, false
	}
	pl := Place{Seq: h.Seq, Offset: p.shape.offset(s, int(h.PSN), c.cfg.Chunk), Arena: p.eager}
	if p.eager {
		pl.Offset += int(p.arena)
	}
	return pl, true
}

// find returns the operation and the shard that a chunk belongs to.
func (c *Comm) find(h *wire.Data) (*op, int, bool) {
	if c.err != nil || int(h.Root) >= c.cfg.Size || int(h.Root) == c.cfg.Rank {
		return nil, 0, false
	}
	p := c.slot(h.Seq)
	if p == nil {
		return nil, 0, false
	}
	if p.state == early && !p.known() && !c.begin(p, h) || p.state == early && !c.vacant(p.arena) {
		return nil, 0, false
	}
	theirs := shape{coll: h.Collective, bytes: int(h.Bytes)}
	if h.Collective == wire.Broadcast {
		theirs.root = int(h.Root)
	}
	if p.shape.mismatch(&theirs) {
		c.differs(p, h, &theirs)
		return nil, 0, false
	}
	s := p.shape.shard(int(h.Root))
	return p, s, s >= 0
}

// begin opens the state of an eager operation that another rank has begun and
// this one has not posted. Only what fits the arena is believed.
func (c *Comm) begin(p *op, h *wire.Data) bool {
	if c.cfg.Lossless || h.Arena == NotEager || h.Arena%64 != 0 || h.IsRepair() || int(h.Bytes) > c.cfg.Eager {
		return false
	}
	o := Op{Collective: h.Collective, Bytes: int(h.Bytes)}
	if o.Collective == wire.Broadcast {
		o.Root = int(h.Root)
	}
	s := shapeOf(o, c.cfg.Size, c.cfg.Chunk)
	if s.total() > c.cfg.Eager || s.shards*s.chunks > c.cfg.EagerChunks || int(h.Arena)+s.total() > c.cfg.Arena {
		return false
	}
	if h.Seq-c.posted >= epochOps || !c.vacant(h.Arena) {
		return false
	}
	for seq := c.posted; before(seq, c.begun); seq++ {
		q := &c.ring[seq%slots]
		if q.seq == seq && q.known() && int(q.arena) < int(h.Arena)+s.total() && int(h.Arena) < int(q.arena)+q.shape.total() {
			return false // one of the two is forged
		}
	}
	if before(c.begun, h.Seq+1) {
		c.begun = h.Seq + 1
	}
	c.setShape(p, s)
	p.road = road{eager: true, arena: h.Arena}
	return true
}

// vacant reports whether a place in the arena may be that of an operation to come. Whoever has
// begun it has heard of all that they entered the last barrier posted here, and that it lies behind
// all posted since. So what a stranger sends cannot overwrite a result.
func (c *Comm) vacant(arena uint32) bool {
	opener := &c.ring[c.epoch.opener%slots]
	entered := !before(c.opened, c.epoch.opener) || opener.seq == c.epoch.opener && opener.entered
	return entered && int(arena) >= c.epoch.bytes
}

// Received says that a chunk's payload is where Place said.
func (c *Comm) Received(now Time, h *wire.Data) {
	c.tick(now)
	p := &c.ring[h.Seq%slots]
	s, psn := p.shape.shard(int(h.Root)), int(h.PSN)
	bit := s*p.shape.chunks + psn
	if !p.have.Set(bit) {
		return
	}
	p.moved = c.now
	if p.since == 0 {
		p.since = c.now
	}
	of := &p.seen[s]
	of.count++
	p.current = s
	hole := of.hi
	of.hi = max(of.hi, h.PSN+1)
	if c.cfg.Lossless {
		if p.full() {
			c.advance()
		}
		return
	}
	c.answered(p, bit, h.IsRepair())
	if !h.IsRepair() {
		if h.PSN > hole {
			c.suspect(p, s, int(hole), psn)
		}
		c.overtaken(p, s)
	}
	if p.state != active {
		return
	}
	if !p.eager {
		c.took(p, s, int(of.hi))
	}
	p.tries = 0
	if p.full() {
		p.cutoff = 0
		if !p.eager {
			// A few bytes between many ranks, as in a barrier, say nothing about a rate.
			if total := p.shape.total(); total >= 4*c.cfg.Chunk && (!p.silent || c.pace.rate == 0 && !p.repaired) {
				c.pace.measure(total, c.now-p.since)
			}
			if !p.spurious {
				c.pace.kept()
			}
			c.activeOps(func(q *op) bool { c.arm(q); return true }) // the next one's turn has come
		}
		c.advance()
		return
	}
	c.arm(p)
}

// Expected is a guess at the chunks that arrive next.
type Expected struct {
	Seq    uint32
	Root   int
	PSN    int
	Count  int
	Offset int // of chunk PSN in the receive buffer
	Bytes  int // of all of them
}

// Expect guesses what arrives next, so that a fabric can receive in place. It
// returns false when it has no idea. Only buffers of posted operations are
// named, and only chunks that have not arrived.
func (c *Comm) Expect() (Expected, bool) {
	var e Expected
	if c.cfg.Lossless || c.err != nil {
		return e, false
	}
	c.activeOps(func(p *op) bool {
		if p.eager || p.full() || !p.open {
			return true
		}
		s := p.current
		for range p.shape.shards {
			if p.seen[s].count < uint32(p.shape.chunks) && int(p.seen[s].hi) < p.shape.chunks { //nolint:gosec // bounded by Post
				break
			}
			s = (s + 1) % p.shape.shards
		}
		psn := int(p.seen[s].hi)
		if psn >= p.shape.chunks {
			return true
		}
		off := p.shape.offset(s, psn, c.cfg.Chunk)
		e = Expected{
			Seq: p.seq, Root: p.shape.rootOf(s), PSN: psn, Count: p.shape.chunks - psn,
			Offset: off, Bytes: (s+1)*p.shape.bytes - off,
		}
		return false
	})
	return e, e.Count > 0
}
