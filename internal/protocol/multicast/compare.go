package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Ranks that call different operations by the same number have a bug that ends the communicator,
// with an error that names two of them. What proves it has come over the reliable path: a barrier's
// message, a request for chunks or a repair. A datagram proves nothing, since anybody on the network
// can send one: if it does not fit the operation it is dropped and counted. A small operation has no
// barrier, so there such a datagram makes a rank tell its right neighbour what it has called. The
// neighbour compares that with its own call and tells its right neighbour in turn, each rank once an
// operation, so that it goes round the ring: if any two ranks differ, then so do two neighbours.

// compare tells the right neighbour what this rank has called, once.
func (c *Comm) compare(p *op) {
	if p.compared || c.cfg.Size == 1 {
		return
	}
	p.compared = true
	c.send(c.topo.Right(), wire.Control{
		Kind: wire.Compare, Seq: p.seq, Collective: p.shape.coll,
		Root: uint16(p.shape.root), Bytes: uint64(p.shape.bytes), //nolint:gosec // checked by Post
	})
}

// compared takes what the left neighbour has called.
func (c *Comm) compared(p *op, from int, m *wire.Control) {
	switch {
	case from != c.topo.Left():
		c.stats.Dropped++
	case c.sameCall(p, from, m):
		c.compare(p)
	}
}

// sameCall reports whether another rank has called the same as this one, by its word on the
// reliable path. If not, the communicator fails.
func (c *Comm) sameCall(p *op, from int, m *wire.Control) bool {
	theirs := shape{coll: m.Collective, root: int(m.Root), bytes: int(m.Bytes)} //nolint:gosec // compared only
	if theirs.coll == p.shape.coll && theirs.root == p.shape.root && theirs.bytes == p.shape.bytes {
		return true
	}
	c.disagree(p.seq, c.cfg.Rank, describe(&p.shape), from, describe(&theirs))
	return false
}

// announce tells the right neighbour of a lossless fabric what was posted. Where
// all ranks multicast, their chunks show a disagreement; but two ranks that
// each take the other for the root of a Broadcast would both wait for ever, and
// chunks carry no more than the low 32 bits of a size.
func (c *Comm) announce(p *op) {
	if c.cfg.Lossless && (p.shape.coll == wire.Broadcast || p.shape.bytes >= 1<<32) {
		c.compare(p)
	}
}

// differs takes a chunk of another operation than this rank has called, or seen begun.
func (c *Comm) differs(p *op, h *wire.Data, theirs *shape) {
	if h.IsRepair() || c.cfg.Lossless { // it came over the reliable path
		if p.state != early {
			c.disagree(p.seq, c.cfg.Rank, describe(&p.shape), int(h.Root), describe(theirs))
		}
		return
	}
	c.stats.Mismatched++
	p.disputed = true
	if p.state != early && p.eager {
		c.compare(p)
	}
}
