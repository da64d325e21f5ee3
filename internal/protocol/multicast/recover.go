package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// How the components of an operation that deal with lost chunks work together: a gap (loss) or a
// silence (timer) leads to a request (fetch); what arrives answers those of this rank and of its
// right neighbour (repairs); and how it arrives says how long to wait the next time (pace).

// arm sets the moment after which silence counts as loss: the time that a window takes at the
// measured rate, and alpha (Khalilov et al., SC24, III-C).
func (c *Comm) arm(p *op) {
	bytes := c.cfg.Window * c.cfg.Chunk
	if c.pace.rate == 0 { // the assumed rate may be far too slow
		bytes = min(bytes, p.total())
	}
	c.armFor(p, bytes)
}

// armFor does so when that many bytes may be on their way.
func (c *Comm) armFor(p *op, bytes int) {
	if p.mode.kind == reliable || p.mode.relay || p.received() || !c.started(p) ||
		p.mode.kind == serial && !p.link.sending {
		p.timer.stop()
		return
	}
	most := max(maxCutoff, c.cfg.Cutoff)
	after := min(c.pace.cutoff(bytes)<<min(p.timer.tries, 8), most)
	if p.viaRelay || p.mode.kind == serial && c.relays() {
		after = most // it may wait behind much else on the reliable path
	}
	p.timer.arm(c.now + after)
}

// armAll arms all operations: it may be the turn of others now.
func (c *Comm) armAll() {
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		c.arm(p)
	}
}

// started reports whether chunks of an operation may be sent, as far as barriers go.
func (c *Comm) started(p *op) bool { return p.barrier.open && c.epoch.begun(&p.mode) }

// suspect notes that chunks seem lost.
func (c *Comm) suspect(p *op, chunks chunkRange) {
	if p.state != active || p.mode.relay || p.loss.noted(chunks) {
		return
	}
	p.loss.prune(&p.layout, &p.receiver)
	if c.cfg.Reorder == 0 || p.loss.full() {
		c.ask(p, request{chunkRange: chunks, certain: true})
		return
	}
	p.loss.note(gap{chunks, c.now + c.pace.reorder})
}

// suspectBehind looks for what a chunk of a shard shows to be lost elsewhere: all that earlier
// roots of the chain have not delivered, since they had finished before; and, from the same root,
// all of older eager operations.
func (c *Comm) suspectBehind(p *op, shard int) {
	for s := p.loss.passed(&p.layout, shard); s < shard; s++ {
		if !p.receiver.whole(&p.layout, s) {
			c.suspect(p, chunkRange{s, 0, p.chunks})
		}
	}
	if p.mode.kind != eager || c.ops.first == p.seq {
		return
	}
	root := p.rootOf(shard)
	for q := c.ops.front(); q != nil; q = c.ops.after(q) {
		if !wire.Before(q.seq, p.seq) {
			return
		}
		if s := q.shard(root); q.mode.kind == eager && s >= 0 && !q.receiver.whole(&q.layout, s) {
			c.suspect(q, chunkRange{s, 0, q.chunks})
		}
	}
}

// ask requests chunks from the left neighbour.
func (c *Comm) ask(p *op, q request) {
	q.pushed = c.unreadable
	asked := uint64(p.fetch.ask(&p.layout, &c.out, &p.receiver, q))
	c.stats.Lost += asked
	c.waitedFor[p.rootOf(q.shard)].Asked += asked
}

// answered settles the requests, of this rank and of the right neighbour, for a chunk that has just
// arrived.
func (c *Comm) answered(p *op, bit int, h *wire.Data) {
	if h.IsRepair() {
		c.stats.Repaired++
		p.fetch.repaired = true
		c.settle(p, false)
	} else if p.fetch.answer(bit) {
		c.stats.Lost-- // it was only late
		if h.IsMulticast() {
			c.spurious(p)
		}
	}
	c.backlog.add(p.seq, p.repairs.arrived(bit, !h.IsMulticast()))
}

// duplicate takes note of a chunk that this rank has already. If one copy came by repair and the
// other by multicast, the request was spurious.
func (c *Comm) duplicate(p *op, bit int, repair bool) {
	asked := p.fetch.answer(bit)
	if asked && !repair {
		c.stats.Lost--
	}
	if asked || repair {
		c.spurious(p)
		c.settle(p, true)
	}
}

// settle lets the cutoff learn, once for each time that it has passed.
func (c *Comm) settle(p *op, spurious bool) {
	if passed, ok := p.timer.settle(); ok {
		c.pace.timeout(spurious, c.now-passed)
	}
}

// spurious takes note of a request that multicast answers after all. Unless one of this operation
// was speculative, it was for a gap, in which the chunk was overtaken.
func (c *Comm) spurious(p *op) {
	if p.fetch.speculative {
		return
	}
	p.fetch.spurious = true
	if more := c.pace.reordered(c.now); more > 0 {
		for q := c.ops.front(); q != nil; q = c.ops.after(q) { // open gaps are of the same kind
			q.loss.delay(more)
		}
	}
}

// learn takes what a large or serial operation that has just been received says of how fast and how orderly
// chunks come.
func (c *Comm) learn(p *op) {
	// A few bytes between many ranks, as in a barrier, say nothing about a rate.
	steady := !p.timer.silent || c.pace.rate == 0 && !p.fetch.repaired
	if total := p.total(); total >= 4*c.cfg.Chunk && steady {
		c.pace.measure(total, c.now-p.receiver.since)
	}
	if !p.fetch.spurious {
		c.pace.inOrder()
	}
}
