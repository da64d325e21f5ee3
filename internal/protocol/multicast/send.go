package multicast

// NextRun puts chunks to multicast into r and reports whether there are any. The driver sends as many
// of the first ones as the fabric takes and says so with Sent.
func (c *Comm) NextRun(r *Run) bool {
	if c.err != nil {
		return false
	}
	received := true // all older operations have been received here
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		if n := c.sendable(p, received); n > 0 {
			*r = p.sender.run(&p.layout, c.cfg.Subgroups, n)
			r.Relay = c.relaysOf(p)
			r.Probe = r.Relay && c.reach.due(c.now)
			p.sender.relay, p.sender.probe = r.Relay, false
			return true
		}
		received = received && p.received()
	}
	return false
}

// sendable returns how many chunks of an operation may be sent now. The head of a chain begins when
// all before has been received here: then no other root of an older operation is still sending.
func (c *Comm) sendable(p *op, received bool) int {
	left := p.chunks - p.sender.next
	if left == 0 {
		return 0
	}
	if turn := p.sender.turn || received && p.sender.leads; !turn || !c.started(p) {
		return 0
	}
	relays := c.relaysOf(p)
	if relays {
		left = min(left, relayAhead-c.relayed.own)
	}
	if p.mode.window == 0 {
		return max(0, left)
	}
	underWay := c.flows.of(&p.layout).inFlight(p.mode.window, p.credit.floor, c.shared || relays)
	if p.mode.kind == serial {
		return max(0, min(left, c.serialBound(p, underWay, received)-p.sender.next))
	}
	return max(0, min(left, p.credit.bound(&p.layout, underWay)-p.sender.next))
}

// relaysOf reports whether this rank relays the chunks of an operation that it still has to send.
func (c *Comm) relaysOf(p *op) bool {
	return p.mode.relay || p.mode.kind != reliable && c.relays()
}

// Probed says that the first chunk of the run that NextRun returned was multicast, though it is
// relayed. Only that one is Sent then.
func (c *Comm) Probed(seq uint32) {
	c.ops.at(seq).sender.probe = true
	c.reach.probed(c.now)
}

// Sent says that the first n chunks of the run that NextRun returned are on their way, or may be
// relayed.
func (c *Comm) Sent(seq uint32, n int) {
	p := c.ops.at(seq)
	if p.sender.relay {
		p.sender.relayed = true
		c.forward(p, chunkRange{p.own, p.sender.next, p.sender.next + n}, p.sender.probe)
	}
	p.sender.next += n
	p.moved = c.now
	if p.mode.window > 0 {
		p.sender.progress.sent(c.now, p.credit.room(&p.layout))
		if p.mode.kind == serial {
			c.sentSerial(p, p.sender.next)
		} else {
			p.credit.advance(&p.layout, &c.out, p.own, 0, p.sender.next)
		}
	}
	if p.mode.kind == large && p.timer.armed() {
		// A sender need not receive anything before its chunks, perhaps a window, have left its queue.
		c.armFor(p, 2*c.cfg.Window*c.cfg.Chunk)
	}
	if !p.sender.done(&p.layout) {
		c.verify()
		return
	}
	c.waitedFor[c.cfg.Rank].Chunks += p.waited(c.now, c.freed)
	p.sender.pass(&p.layout, &c.out)
	c.advance()
}
