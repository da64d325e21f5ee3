package multicast

// Post begins an operation and returns its number. It returns ErrBusy when Room is 0, the error
// that Fail was given after a failure, or an error that names a wrong argument.
func (c *Comm) Post(now Time, o Op) (uint32, error) {
	c.tick(now)
	if c.err != nil {
		return 0, c.err
	}
	if c.Room() == 0 {
		return 0, ErrBusy
	}
	if err := o.check(&c.cfg); err != nil {
		return 0, err
	}
	p := c.post(o)
	seq := p.seq
	for _, e := range p.calls.early {
		c.takeCall(p, e.rank, &e.m)
	}
	p.calls.early = p.calls.early[:0]
	for _, e := range p.calls.credits {
		c.credit(p, e.rank, &e.m)
	}
	p.calls.credits = p.calls.credits[:0]
	c.dispute(p)
	if p.mode.compare {
		p.calls.send(&p.layout, &c.out)
	}
	c.arm(p)
	c.advance()
	return seq, nil
}

// post makes an operation active: a new one, or one that others have begun.
func (c *Comm) post(o Op) *op {
	s := shapeOf(o, c.cfg.Size, c.cfg.Chunk)
	seq := c.ops.posted
	m := c.epoch.choose(&c.cfg, seq, &s, o.Sync)
	if m.kind == eager {
		s.pack()
	}
	c.ops.post()
	c.inFlight++
	p := c.ops.at(seq)
	if p.state != early || p.seq != seq {
		p.blank(seq)
	}
	if p.known() && (p.mode.arena != m.arena || p.mode.second != m.second || p.differs(s.called(), s.digest)) {
		// The operation begun here is not the one posted: only calls from messages count.
		before := p.calls
		c.forget(p)
		p.blank(seq)
		p.calls = calls{early: before.early, credits: before.credits, disputed: true}
	}
	if p.known() {
		p.mode, p.call = m, s.call
	} else {
		c.setLayout(p, &s, &m)
	}
	p.state, p.moved, p.waits = active, c.now, c.now
	if m.kind == serial {
		c.join(p)
		p.credit.link = &p.link
	}
	p.sender.reset(&p.layout)
	p.receiver.own(&p.layout)
	if m.barrier {
		c.stats.Barriers++
	} else {
		p.barrier.open = true
	}
	return p
}
