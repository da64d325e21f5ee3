package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Flow control of large operations. The roots of a chain send one after
// another, so the chain is one stream of chunks: shard after shard. No chunk
// of it may be sent more than a window ahead of what the slowest rank has
// taken off its queue, whoever sends it. Each rank turns how far it has come in the
// stream into a limit for each root that this concerns, and tells its parent in
// that root's tree. The minimum travels on: feedback shrinks on its way to
// the root instead of imploding there (Gleam does this in switches).

// line returns the chain of a shard and which one of it the shard is.
func (c *Comm) line(p *op, shard int) (chain, index int) {
	if p.shape.coll == wire.Broadcast {
		return 0, 0
	}
	chain = c.chains.Of(shard)
	return chain, shard - c.chains.Head(chain)
}

// limit returns up to which chunk a root may send its shard for all that this
// rank cares. All ranks start from the same limits, so those need no message.
// It goes beyond the shard's end, since a root that keeps less than a window
// under way wants to know what of its last one was taken.
func (c *Comm) limit(p *op, shard int) int {
	if p.window == 0 {
		return p.shape.chunks
	}
	chain, index := c.line(p, shard)
	return min(max(0, p.taken[chain]+p.window-index*p.shape.chunks), p.most())
}

// most is the limit after which none is reported: the root may then send its last chunk, whatever
// it keeps under way.
func (p *op) most() int { return p.shape.chunks + p.window - p.floor }

// postCredit sizes and fills the credit state of an operation.
func (c *Comm) postCredit(p *op) {
	p.window = c.window
	if p.shape.coll == wire.Broadcast {
		p.window = c.cfg.Window
	}
	p.step, p.floor = creditStep(p.window), p.window
	if p.shape.coll == wire.Broadcast || c.chains.M == p.shape.shards {
		p.step = fineStep(p.window)
		p.floor = min(p.window, 2*int(p.step))
	}
	p.taken = zeroed(p.taken, c.chains.M)
	p.granted = zeroed(p.granted, c.chains.M)
	if p.window == 0 {
		return
	}
	p.child = zeroed(p.child, c.topo.AllChildren())
	p.reported = zeroed(p.reported, p.shape.shards)
	for s := range p.shape.shards {
		limit := uint32(c.limit(p, s)) //nolint:gosec // at most a shard and a window
		below := c.below(p, s)
		for j := range below {
			below[j] = limit
		}
		p.reported[s] = limit
	}
}

// below returns the limits for a shard that this rank's children in its root's
// tree have reported.
func (c *Comm) below(p *op, shard int) []uint32 {
	root := p.shape.rootOf(shard)
	return p.child[c.topo.FirstChild(root):][:c.topo.Children(root)]
}

// creditOf returns up to which chunk of the own shard this rank may send with so many under
// way: what all ranks have room for, less the rest of the window.
func (c *Comm) creditOf(p *op, underWay int) int {
	if p.window == 0 {
		return p.shape.chunks
	}
	return c.room(p) - p.window + underWay
}

// room returns up to which chunk of the own shard all ranks have room.
func (c *Comm) room(p *op) int {
	low := p.most()
	for _, limit := range c.below(p, p.shape.shard(c.cfg.Rank)) {
		low = min(low, int(limit))
	}
	return low
}

// took notes that this rank has taken the chunks of a shard before psn off its
// queue, or sent them, and reports what limits that moves.
func (c *Comm) took(p *op, shard, psn int) {
	if p.window == 0 {
		return
	}
	chain, index := c.line(p, shard)
	taken := max(p.taken[chain], index*p.shape.chunks+psn)
	// The own shard takes no room: where the stream reaches it, what was sent of it counts as taken.
	if own := p.shape.shard(c.cfg.Rank); own >= 0 {
		if ch, i := c.line(p, own); ch == chain && taken >= i*p.shape.chunks {
			taken = max(taken, i*p.shape.chunks+p.next)
		}
	}
	p.taken[chain] = taken
	head, end := 0, p.shape.shards
	if p.shape.coll != wire.Broadcast {
		head, end = c.chains.Head(chain), c.chains.Head(chain+1)
	}
	for s := head + p.granted[chain]; s < end && c.limit(p, s) > 0; s++ {
		c.report(p, s)
		if s == head+p.granted[chain] && (int(p.reported[s]) == p.most() || p.shape.rootOf(s) == c.cfg.Rank) {
			p.granted[chain]++
		}
	}
}

// credit takes a child's word on how far a root may send for all that it and
// those below it care.
func (c *Comm) credit(p *op, from int, m *wire.Control) {
	s := p.shape.shard(int(m.Root))
	if int(m.Root) >= c.cfg.Size || s < 0 || p.window == 0 || int(m.PSN) > p.most() {
		c.stats.Dropped++
		return
	}
	j := c.topo.ChildIndex(int(m.Root), from)
	if j < 0 {
		c.stats.Dropped++
		return
	}
	at := &c.below(p, s)[j]
	*at, p.moved = max(*at, m.PSN), c.now
	if p.shape.rootOf(s) == c.cfg.Rank {
		p.progress.credited(c.now, c.room(p))
		if p.progress.reached == p.most() {
			c.learn(p)
		}
		return
	}
	c.report(p, s)
}

// report passes the limit for a shard to the parent in its root's tree once it
// has moved by a step.
func (c *Comm) report(p *op, s int) {
	root := p.shape.rootOf(s)
	if root == c.cfg.Rank {
		return
	}
	low := uint32(c.limit(p, s)) //nolint:gosec // at most a shard and a window
	for _, limit := range c.below(p, s) {
		low = min(low, limit)
	}
	// Counted in whole steps, what the levels of the tree hold back does not
	// add up: all of them together withhold less than one step, and nothing
	// of what the root needs to finish.
	if low == p.reported[s] || low/p.step == p.reported[s]/p.step && int(low) < p.most() {
		return
	}
	p.reported[s] = low
	c.send(c.topo.Parent(root), wire.Control{
		Kind: wire.Credit, Collective: p.shape.coll, Root: uint16(root), Seq: p.seq, PSN: low, //nolint:gosec // a rank
	})
}

// creditStep is how many chunks one credit message covers: few messages, but
// at least two in each window, so that the root does not run dry.
func creditStep(window int) uint32 {
	if window < 8 {
		return uint32(max(1, window/2)) //nolint:gosec // small
	}
	return uint32(window / 4) //nolint:gosec // not negative
}

// fineStep is creditStep where the root keeps less than a window under way: two steps
// must fit in that. Ranks withhold less than one, so with two it always gets on.
func fineStep(window int) uint32 {
	const least = 4                                        // chunks, where a window has them twice
	return uint32(max(1, window/16, min(least, window/2))) //nolint:gosec // not negative
}
