package core

import "github.com/torch-mcast/torch-mcast/internal/wire"

// barrier sends what may be sent of an operation's dissemination barrier: in
// round i a rank tells rank+2^i that it and everybody it has heard of is
// ready. After ceil(log2 P) rounds everybody has heard of everybody. (For P a power
// of two this is as fast as recursive doubling; it works for any P.)
func (c *Comm) barrier(p *op) {
	rounds := c.topo.rounds()
	for p.entered && p.nextSend < rounds && p.heard|^uint32(0)<<p.nextSend == ^uint32(0) {
		c.send(c.topo.to(p.nextSend), wire.Control{
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

// announce tells the right neighbour of a lossless fabric what was posted. Where
// all ranks multicast, their chunks show a disagreement; but two ranks that
// each take the other for the root of a Broadcast would both wait for ever, and
// chunks carry no more than the low 32 bits of a size.
func (c *Comm) announce(p *op) {
	if !c.cfg.Lossless || c.cfg.Size == 1 || (p.shape.coll != wire.Broadcast && p.shape.bytes < 1<<32) {
		return
	}
	c.send(c.topo.right(), wire.Control{
		Kind: wire.Ready, Seq: p.seq, Collective: p.shape.coll,
		Root: uint16(p.shape.root), Bytes: uint64(p.shape.bytes), //nolint:gosec // checked by Post
	})
}

// ready takes a message of the barrier of a posted operation, or what a
// neighbour announces on a lossless fabric.
func (c *Comm) ready(p *op, from int, m *wire.Control) {
	if int(m.Round) >= c.topo.rounds() || from != c.topo.from(int(m.Round)) {
		c.stats.Dropped++
		return
	}
	theirs := shape{coll: m.Collective, root: int(m.Root), bytes: int(m.Bytes)} //nolint:gosec // compared only
	switch {
	case theirs.coll != p.shape.coll || theirs.root != p.shape.root || theirs.bytes != p.shape.bytes:
		c.disagree(p.seq, c.cfg.Rank, describe(&p.shape), from, describe(&theirs))
		return
	case c.cfg.Lossless:
		return
	case !p.barrier: // Sync on one side only, or different settings
		c.disagree(p.seq, c.cfg.Rank, describe(&p.shape)+" without a barrier", from, describe(&theirs)+" with one")
		return
	}
	p.heard |= 1 << m.Round
	p.moved = c.now
	c.barrier(p)
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
	if c.cfg.Lossless && m.Kind != wire.Ready {
		c.stats.Dropped++
		return
	}
	switch {
	case m.Kind == wire.Ready && (p.state == active || c.cfg.Lossless && p.state == retained):
		c.ready(p, from, m)
	case m.Kind == wire.Ready && p.state == early && len(p.ready) < c.topo.rounds():
		p.ready = append(p.ready, readyFrom{from, *m})
	case m.Kind == wire.Done && from == c.topo.right() && p.state == active:
		c.rightIsDone(p)
	case m.Kind == wire.Activate && from == c.topo.left() && p.state == active:
		p.turn, p.moved = true, c.now
	case m.Kind == wire.Credit && (p.state == active || p.state == retained) && !p.eager:
		c.credit(p, from, m) // after the end, too: its root learns from the last
		return
	case m.Kind == wire.Fetch && from == c.topo.right() && p.known() && !p.rightDone:
		c.fetch(p, from, m)
		return
	default:
		c.stats.Dropped++
		return
	}
	c.advance()
}
