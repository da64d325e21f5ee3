package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

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
	underWay := c.flow(p).inFlight(p, c.shared)
	return max(0, min(left, c.creditOf(p, underWay)-p.next, c.abreast(p, underWay)-p.next))
}

// abreast returns up to which chunk of the own shard this rank may send for the
// other chains not to fall behind: as far ahead of the least that has come from
// any of them as it may have under way. If all links are alike every chain gets the same share of
// each, as it must: the link into a root has one stream less to carry than
// those into the others, so once a chain has finished before the rest, a link
// is the limit that would not have been.
func (c *Comm) abreast(p *op, underWay int) int {
	if p.window == 0 || c.chains.M == 1 || p.shape.coll == wire.Broadcast {
		return p.shape.chunks
	}
	mine, index := c.line(p, c.cfg.Rank)
	bound := (index + 1) * p.shape.chunks
	for ch, taken := range p.taken {
		length := (c.chains.Head(ch+1) - c.chains.Head(ch)) * p.shape.chunks
		if ch != mine && taken < length {
			bound = min(bound, taken+underWay)
		}
	}
	return max(0, bound-index*p.shape.chunks)
}

// isHead reports whether this rank is the first root of its chain.
func (c *Comm) isHead(p *op) bool {
	return p.shape.coll == wire.Broadcast || c.chains.Head(c.chains.Of(c.cfg.Rank)) == c.cfg.Rank
}

// blockChunks is how many chunks in a row go to one subgroup: a word of the
// bitmap, which a receive worker need not share.
const blockChunks = 64

// run describes up to n chunks from p.next, all of one subgroup: contiguous
// blocks of a shard go to the multicast groups (Khalilov et al., SC24, IV-C), by turns, so
// that all of a receiver's workers have something to do while one root sends.
func (c *Comm) run(p *op, n int) Run {
	k, g := p.shape.chunks, c.cfg.Subgroups
	block := max(1, min(blockChunks, k/g))
	sub := p.next / block % g
	end := min(k, (p.next/block+1)*block)
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
	p.moved = c.now
	if !c.cfg.Lossless && !p.eager {
		if p.window > 0 {
			p.progress.sent(c.now, c.room(p))
		}
		c.took(p, p.shape.shard(c.cfg.Rank), 0)
		if p.cutoff != 0 {
			// Who sends need not hear from others before what it has sent has
			// left its queue, which may be a window.
			c.armFor(p, 2*c.cfg.Window*c.cfg.Chunk)
		}
	}
	if !p.sent() {
		return
	}
	if next := c.cfg.Rank + 1; !c.cfg.Lossless && !p.eager && p.shape.coll != wire.Broadcast &&
		next < c.cfg.Size && c.chains.Of(next) == c.chains.Of(c.cfg.Rank) {
		c.send(next, wire.Control{Kind: wire.Activate, Collective: p.shape.coll, Seq: seq})
	}
	c.advance()
}
