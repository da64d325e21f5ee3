package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Ranks that call different operations by the same number have a bug that ends the communicator, with an error that
// names two of them. The proof must come over the reliable path: a barrier's message, a request for chunks or a repair.
// A datagram proves nothing, since anybody on the network can send one: if it does not fit the operation it is dropped
// and counted. A small operation has no barrier, so there such a datagram makes a rank tell its right neighbour its
// call. The neighbour compares that with its own call and tells its right neighbour in turn, each rank once an
// operation, so that calls go round the ring: if any two ranks differ, then two neighbours differ too.
//
// Where operations are steps of calls (wire.Call), a Compare alone has room for the call; other messages have a digest.
// A rank that gets a digest that does not fit tells the sender by a Compare, and the sender fails: so the error names
// the calls.

// compare takes what another rank has called: the left neighbour, or a rank that got a message that does not fit.
func (c *Comm) compare(p *op, from int, m *wire.Control) {
	left := from == c.topo.Left()
	switch {
	case !left && p.call.IsNone():
		c.stats.Dropped++
	case c.sameCall(p, from, m) && left:
		p.calls.send(&p.layout, &c.out)
	}
}

// sameCall reports whether another rank has called the same as this one, by its message on the reliable path. If not,
// the communicator fails, here or there.
func (c *Comm) sameCall(p *op, from int, m *wire.Control) bool {
	mine, theirs := p.called(), Op{Collective: m.Collective, Root: int(m.Root), Bytes: int(m.Bytes)}
	if m.Kind == wire.Compare {
		theirs.Call = m.Call()
	} else if m.Digest == p.digest {
		theirs.Call = p.call
	}
	if mine.same(theirs) {
		return true
	}
	if !p.call.IsNone() && m.Kind != wire.Compare {
		tellCall(&p.layout, &c.out, from)
	} else {
		c.disagree(p, mine, from, theirs)
	}
	return false
}

// otherCall takes a chunk of another operation than this rank has called, or seen begun.
func (c *Comm) otherCall(p *op, h *wire.Data, theirs Op) {
	if !h.IsMulticast() || c.cfg.Lossless { // it came over the reliable path
		switch {
		case p.state == early:
		case p.call.IsNone():
			c.disagree(p, p.called(), int(h.Root), theirs)
		default:
			p.calls.send(&p.layout, &c.out)
		}
		return
	}
	c.stats.Mismatched++
	p.calls.disputed = true
	c.dispute(p)
}

// dispute makes ranks compare their calls, if a datagram has told of another call and nothing else would show it.
func (c *Comm) dispute(p *op) {
	if p.calls.disputed && p.state != early && p.mode.kind == eager {
		p.calls.send(&p.layout, &c.out)
	}
}
