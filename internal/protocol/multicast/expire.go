package multicast

// Deadline returns when Expire wants to be called, and whether it does.
func (c *Comm) Deadline() (Time, bool) {
	var first Time
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		if at := p.timer.cutoff; at != 0 && (first == 0 || at < first) {
			first = at
		}
		if at, gap := p.loss.next(); gap && (first == 0 || at < first) {
			first = at
		}
	}
	return first, first != 0
}

// Cutoff returns when a silence counts as loss, and whether one ever does.
func (c *Comm) Cutoff() (Time, bool) {
	var first Time
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		if at := p.timer.cutoff; at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first, first != 0
}

// Expire asks for overdue chunks.
func (c *Comm) Expire(now Time) { c.expire(now, true) }

// ExpireGaps asks for overdue gaps alone: the chunks that show them have arrived, even if others still wait somewhere.
func (c *Comm) ExpireGaps(now Time) { c.expire(now, false) }

func (c *Comm) expire(now Time, silence bool) {
	c.tick(now)
	if c.err != nil {
		return
	}
	behind := false // an older large operation is incomplete: its roots go first
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		for _, g := range p.loss.gaps {
			if g.due > c.now {
				break
			}
			c.ask(p, request{chunkRange: g.chunkRange, certain: true})
		}
		p.loss.drop(c.now)
		if silence && p.timer.expired(c.now) {
			if p.mode.kind != large || !behind {
				c.askAfterSilence(p)
				p.timer.expire(c.now)
			}
			c.arm(p)
		}
		behind = behind || p.mode.kind.inPlace() && !p.received()
	}
	c.verify()
}

// askAfterSilence asks for the chunks that the roots in turn may have sent by now: with credits, not more than a window
// beyond the chunks that have arrived.
func (c *Comm) askAfterSilence(p *op) {
	chains := &p.mode.chains
	for ch := range chains.M {
		for s := chains.Head(ch); s < chains.Head(ch+1); s++ {
			if !p.receiver.whole(&p.layout, s) {
				c.ask(p, request{chunkRange: chunkRange{s, 0, c.horizon(p, s)}, again: true})
				break
			}
		}
	}
}

// horizon returns up to which chunk of its shard a root may have sent.
func (c *Comm) horizon(p *op, shard int) int {
	if p.handshake.right { // it has everything
		return p.chunks
	}
	return min(p.credit.limit(&p.layout, shard), p.chunks)
}
