package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Hold reports whether a chunk of a lossless fabric has to wait there for this rank to post its
// operation.
func (c *Comm) Hold(h *wire.Data) bool {
	return c.cfg.Lossless && c.err == nil && !wire.Before(h.Seq, c.ops.posted)
}

// Place returns where the payload (n bytes) of a chunk that has arrived goes, or false if it is to
// be dropped. The PSN alone gives the address, so order does not matter (Khalilov et al., SC24,
// III-B). Until Received the chunk counts as missing, so a second Place before that answers the
// same.
//
// It is for chunks that have arrived, not for guesses (see Expect): a dropped chunk is counted, and tells something. A
// duplicate tells that a request for repair was spurious, a chunk of another operation that ranks may have called
// different ones. The first chunk of an eager operation that this rank has not posted opens its state.
func (c *Comm) Place(now Time, h *wire.Data, n int) (Place, bool) {
	c.tick(now)
	p, shard := c.find(h)
	if p == nil || int(h.PSN) >= p.chunks || n != p.length(int(h.PSN)) {
		c.stats.Dropped++
		return Place{}, false
	}
	if bit := p.bit(shard, int(h.PSN)); p.receiver.have.Has(bit) {
		c.arrived(p, shard, h, false)
		c.duplicate(p, bit, h.IsRepair())
		c.stats.Dropped++
		return Place{}, false
	}
	if p.mode.kind == serial {
		limit := p.credit.limit(&p.layout, shard)
		if h.IsRelay() && limit > 0 {
			limit = p.chunks
		}
		if int(h.PSN) >= limit {
			if h.IsMulticast() { // perhaps a probe: relayed chunks wait for no credit
				c.reach.multicast(c.now, int(h.Root))
			}
			c.stats.Dropped++ // nobody can have sent it
			return Place{}, false
		}
	}
	return p.place(shard, int(h.PSN)), true
}

// find returns the operation and the shard that a chunk belongs to, or nil.
func (c *Comm) find(h *wire.Data) (p *op, shard int) {
	root := int(h.Root)
	if c.err != nil || root >= c.cfg.Size || root == c.cfg.Rank {
		return nil, 0
	}
	p = c.ops.find(h.Seq)
	if p == nil || p.state == early && !c.mayBegin(p, h) {
		return nil, 0
	}
	if theirs := opOf(h.Collective, h.Root, int(h.Bytes)); p.differs(theirs, h.Call) {
		c.otherCall(p, h, theirs)
		return nil, 0
	}
	if p.state == active && p.mode.kind == eager && !c.entered(p.mode.opener) {
		return nil, 0 // forged: its place may still hold what an epoch before has there
	}
	if shard = p.shard(root); shard < 0 {
		return nil, 0
	}
	return p, shard
}

// mayBegin reports whether a chunk of an operation that this rank has not posted may be taken. The
// first one opens the operation's state.
func (c *Comm) mayBegin(p *op, h *wire.Data) bool {
	if !p.known() && !c.open(p, h) {
		return false
	}
	return p.mode.second == c.epoch.second && c.vacant(p.mode.arena)
}

// open opens the state of an eager operation that another rank has begun and this one has not
// posted. Only what fits the arena is believed.
func (c *Comm) open(p *op, h *wire.Data) bool {
	if c.cfg.Lossless || h.Arena == NotEager || h.Arena%arenaAlign != 0 || h.IsRepair() || int(h.Bytes) > c.cfg.Eager {
		return false
	}
	s := shapeOf(opOf(h.Collective, h.Root, int(h.Bytes)), c.cfg.Size, c.cfg.Chunk)
	s.digest = h.Call
	from, to := int(h.Arena), int(h.Arena)+s.total()
	if s.total() > c.cfg.Eager || s.all() > c.cfg.EagerChunks || to > c.cfg.Arena {
		return false
	}
	if h.Seq-c.ops.posted >= epochOps || !c.vacant(h.Arena) {
		return false
	}
	for seq := c.ops.posted; wire.Before(seq, c.ops.begun); seq++ {
		q := c.ops.at(seq)
		if q.seq == seq && q.known() && int(q.mode.arena) < to && from < int(q.mode.arena)+q.total() {
			return false // one of the two is forged
		}
	}
	c.ops.begin(h.Seq)
	m := c.epoch.earlyMode(&s, h.Arena)
	c.setLayout(p, &s, &m)
	return true
}

// entered reports whether this rank has entered the barrier that opens an epoch. No chunk of the
// epoch that a rank has sent comes sooner: a root sends it once the barrier is complete there
// (started), and so knows of all ranks, this one too, that they have entered. The chunk may well
// come before the last round of the barrier does here. A repair is an answer to what this rank asked
// for once the barrier was complete here.
//
// While the barrier is not complete its operation is in flight, and so in the table.
func (c *Comm) entered(opener uint32) bool {
	return !wire.Before(c.epoch.opened, opener) || c.ops.at(opener).barrier.entered
}

// vacant reports whether a place in the arena of the last epoch posted here may belong to an operation to come: this
// rank has entered that epoch's barrier, and the place lies behind all posted since. So a stranger's chunk cannot
// overwrite a result, nor a chunk that the right neighbour may still fetch: see epoch.
func (c *Comm) vacant(arena uint32) bool {
	return c.entered(c.epoch.opener) && int(arena) >= c.epoch.bytes
}

// Received says that a chunk's payload is where Place said.
func (c *Comm) Received(now Time, h *wire.Data) {
	c.tick(now)
	p := c.ops.at(h.Seq)
	shard, psn := p.shard(int(h.Root)), int(h.PSN)
	end, ok := p.receiver.take(&p.layout, c.now, shard, psn)
	if !ok {
		return
	}
	p.moved = c.now
	if p.state == active && p.receiver.whole(&p.layout, shard) {
		c.waitedFor[h.Root].Chunks += p.waited(c.now, c.freed)
	}
	// A probe overtakes chunks that are relayed before it.
	probed := h.IsMulticast() && p.mode.kind != reliable && c.reach.relaysLately(c.now, int(h.Root))
	if p.mode.kind != reliable {
		c.answered(p, p.bit(shard, psn), h)
		if !h.IsRepair() && psn > end && !probed {
			c.suspect(p, chunkRange{shard, end, psn})
		}
		if h.IsMulticast() && !probed {
			c.suspectBehind(p, shard)
		}
		c.arrived(p, shard, h, true)
	}
	if p.mode.kind == serial {
		c.latest = p.seq
		c.markSending(p, !h.IsRepair() && !probed)
	}
	if p.state != active {
		c.verify()
		return
	}
	if p.mode.kind == serial {
		c.take(p, int(p.receiver.seen[shard].end))
	} else {
		c.askByCredit(p)
		p.credit.advance(&p.layout, &c.out, shard, int(p.receiver.seen[shard].end), p.sender.next)
	}
	p.timer.tries = 0
	if !p.received() {
		c.arm(p)
		c.verify()
		return
	}
	p.timer.stop()
	c.freed = c.now
	if p.mode.kind.inPlace() {
		c.learn(p)
		c.armAll() // the next one's turn has come
	}
	c.advance()
}
