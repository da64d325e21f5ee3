package core

import "github.com/torch-mcast/torch-mcast/internal/wire"

// Run is a stretch of chunks of the own shard that may be multicast now.
type Run struct {
	Head  wire.Data // of the first chunk, but for Job
	Count int
}

// NextRun returns chunks to multicast, and whether there are any. The driver
// sends as many of the first ones as the fabric takes and says so with Sent.
func (c *Comm) NextRun() (Run, bool) {
	var run Run
	if c.err != nil {
		return run, false
	}
	received := true // all older operations have been received here
	c.activeOps(func(p *op) bool {
		if p.next < p.shape.chunks {
			if n := c.sendable(p, received); n > 0 {
				run = c.run(p, n)
				return false
			}
		}
		received = received && p.full()
		return true
	})
	return run, run.Count > 0
}

// sendable returns how many chunks of an operation may be sent now.
func (c *Comm) sendable(p *op, received bool) int {
	left := p.shape.chunks - p.next
	if c.cfg.Lossless {
		return left
	}
	if !p.open || before(c.opened, p.opener) {
		return 0
	}
	if p.eager {
		return left
	}
	if !p.turn {
		// The head of a chain begins when all before has been received here:
		// then no other root of an older operation is still sending.
		p.turn = received && c.isHead(p)
		if !p.turn {
			return 0
		}
	}
	if c.window == 0 {
		return left
	}
	return min(left, c.creditOf(p)+c.window-p.next)
}

// isHead reports whether this rank is the first root of its chain.
func (c *Comm) isHead(p *op) bool {
	return p.shape.coll == wire.Broadcast || c.chains.head(c.chains.of(c.cfg.Rank)) == c.cfg.Rank
}

// creditOf returns how many chunks of the own shard every rank has taken.
func (c *Comm) creditOf(p *op) int {
	own := p.shape.shard(c.cfg.Rank)
	low := p.shape.chunks
	for j := range c.topo.children(c.cfg.Rank) {
		low = min(low, int(p.child[own*c.topo.rounds()+j]))
	}
	return low
}

// run describes up to n chunks from p.next, all of one subgroup: contiguous
// blocks of a shard go to the multicast groups (paper 000, IV-C).
func (c *Comm) run(p *op, n int) Run {
	k, g := p.shape.chunks, c.cfg.Subgroups
	sub := p.next * g / k
	end := ((sub+1)*k + g - 1) / g
	return Run{
		Head: wire.Data{
			Collective: p.shape.coll, Subgroup: uint8(sub), Root: uint16(c.cfg.Rank), //nolint:gosec // bounded by Config
			Seq: p.seq, PSN: uint32(p.next), Bytes: uint32(p.shape.bytes), Arena: p.arena, //nolint:gosec // bounded by Post
		},
		Count: min(n, end-p.next),
	}
}

// Sent says that the first n chunks of the run that NextRun returned are on
// their way.
func (c *Comm) Sent(seq uint32, n int) {
	p := &c.ring[seq%slots]
	p.next += n
	if !p.sent() {
		return
	}
	if next := c.cfg.Rank + 1; !c.cfg.Lossless && !p.eager && p.shape.coll != wire.Broadcast &&
		next < c.cfg.Size && c.chains.of(next) == c.chains.of(c.cfg.Rank) {
		c.send(next, wire.Control{Kind: wire.Activate, Collective: p.shape.coll, Seq: seq})
	}
	c.advance()
}

// credit takes a child's word on how many chunks of a root it and all below it
// have taken off their queues, and passes the minimum on: feedback shrinks on
// its way to the root instead of imploding there (Gleam does this in switches).
func (c *Comm) credit(p *op, from int, m *wire.Control) {
	s := p.shape.shard(int(m.Root))
	if int(m.Root) >= c.cfg.Size || s < 0 || int(m.PSN) > p.shape.chunks {
		c.stats.Dropped++
		return
	}
	j := c.topo.childIndex(int(m.Root), from)
	if j < 0 {
		c.stats.Dropped++
		return
	}
	at := &p.child[s*c.topo.rounds()+j]
	*at = max(*at, m.PSN)
	if int(m.Root) != c.cfg.Rank {
		c.report(p, s)
	}
}

// report passes credit for a shard to the parent in its root's tree once there
// is enough of it, and as long as the root can use it.
func (c *Comm) report(p *op, s int) {
	if c.window == 0 || int(p.reported[s])+c.window >= p.shape.chunks {
		return
	}
	root := p.shape.rootOf(s)
	low := min(p.hi[s], uint32(p.shape.chunks-c.window)) //nolint:gosec // positive here
	for j := range c.topo.children(root) {
		low = min(low, p.child[s*c.topo.rounds()+j])
	}
	// Counted in whole steps, what the levels of the tree hold back does not
	// add up: all of them together withhold less than one step, and nothing
	// of what the root needs to finish.
	step := creditStep(c.window)
	if low/step == p.reported[s]/step && int(low)+c.window < p.shape.chunks {
		return
	}
	p.reported[s] = low
	c.send(c.topo.parent(root), wire.Control{
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
