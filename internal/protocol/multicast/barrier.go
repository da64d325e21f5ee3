package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// barrier sends what may be sent of an operation's dissemination barrier: in
// round i a rank tells rank+2^i that it and everybody it has heard of is
// ready. After ceil(log2 P) rounds everybody has heard of everybody. (For P a power
// of two this is as fast as recursive doubling; it works for any P.)
func (c *Comm) barrier(p *op) {
	rounds := c.topo.Rounds()
	for p.entered && p.nextSend < rounds && p.heard|^uint32(0)<<p.nextSend == ^uint32(0) {
		c.send(c.topo.To(p.nextSend), wire.Control{
			Kind: wire.Ready, Round: uint8(p.nextSend), Seq: p.seq, //nolint:gosec // under 17
			Collective: p.shape.coll, Root: uint16(p.shape.root), Bytes: uint64(p.shape.bytes), //nolint:gosec // checked by Post
		})
		p.nextSend++
	}
	if p.entered && !p.open && p.heard == 1<<rounds-1 {
		p.open = true
		if before(c.opened, p.seq) {
			c.opened = p.seq
		}
		c.activeOps(func(q *op) bool { c.arm(q); return true })
	}
}

// ready takes a message of the barrier of an operation that was posted.
func (c *Comm) ready(p *op, from int, m *wire.Control) {
	if int(m.Round) >= c.topo.Rounds() || from != c.topo.From(int(m.Round)) {
		c.stats.Dropped++
		return
	}
	if !c.sameCall(p, from, m) {
		return
	}
	if !p.barrier { // Sync on one side only, or different settings
		theirs := Op{Collective: m.Collective, Root: int(m.Root), Bytes: int(m.Bytes)} //nolint:gosec // compared
		c.disagree(p.seq, c.cfg.Rank, describe(&p.shape)+" without a barrier", from, theirs.String()+" with one")
		return
	}
	p.heard |= 1 << m.Round
	p.moved = c.now
	c.barrier(p)
}

// call takes a message that says what another rank has called. What comes before Post waits for it.
func (c *Comm) call(p *op, from int, m *wire.Control) {
	switch {
	case p.state == early && len(p.calls) <= c.topo.Rounds(): // one for each round, and one from the left
		p.calls = append(p.calls, callOf{from, *m})
	case p.state == early:
		c.stats.Dropped++
	case m.Kind == wire.Compare:
		c.compared(p, from, m)
	default:
		c.ready(p, from, m)
	}
}

// Control takes a control message from another rank. Messages that no correct
// rank sends are dropped and counted.
func (c *Comm) Control(now Time, from int, m *wire.Control) {
	c.tick(now)
	if c.err != nil {
		return
	}
	p := c.slot(m.Seq)
	if p == nil {
		return // of an operation that everybody has finished with
	}
	if c.cfg.Lossless && m.Kind != wire.Compare {
		c.stats.Dropped++
		return
	}
	switch {
	case m.Kind == wire.Ready || m.Kind == wire.Compare:
		c.call(p, from, m)
	case m.Kind == wire.Done && from == c.topo.Right() && p.state == active:
		c.rightIsDone(p)
	case m.Kind == wire.Activate && from == c.topo.Left() && p.state == active:
		p.turn, p.moved = true, c.now
	case m.Kind == wire.Credit && (p.state == active || p.state == retained) && !p.eager:
		c.credit(p, from, m) // after the end, too: its root learns from the last
		return
	case m.Kind == wire.Fetch && from == c.topo.Right() && p.known() && !p.rightDone:
		c.fetch(p, from, m)
		return
	default:
		c.stats.Dropped++
		return
	}
	c.advance()
}
