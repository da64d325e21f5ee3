package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Where multicast does not reach all ranks, chunks are relayed: a root sends them to its right neighbour on the
// reliable path, and every rank sends the chunks that it gets so to its own right neighbour, until they are at the rank
// left of the root. Each shard then crosses each link once, as with the ring algorithm. A small Broadcast takes the
// time of its hops, so it goes down the root's tree instead: see byTree. A small Allgather does not: on a ring, chunks
// from many roots go on together, to one neighbour.
//
// A root relays for itself: chunks that come by relay go on by relay, whether or not other roots relay, so every chunk
// arrives without an agreement. But where the roots of a large operation take turns, and none has more under way than
// queues hold, links would idle. So ranks that want chunks relayed say so in its barrier, and all ranks know that once
// it is complete: all roots send at once, and nothing limits them but the paths.

// Relay says that this rank wants everything relayed, even if multicast reaches all ranks. That may change at any time.
func (c *Comm) Relay(always bool) { c.reach.always = always }

// relays reports whether this rank relays its chunks.
func (c *Comm) relays() bool { return c.reach.relays(c.now) }

// askByCredit tells the root by this rank's credit that this rank wants chunks relayed, if it does.
func (c *Comm) askByCredit(p *op) {
	if c.reach.wants(c.now) {
		p.credit.relay = true
	}
}

// byTree reports whether an operation that is relayed goes down the root's tree: an eager Broadcast of k
// chunks that the root sends to log2 P children sooner than a ring's last rank has them, k + P-2 hops.
func (l *layout) byTree() bool {
	return l.mode.kind == eager && l.coll == wire.Broadcast && l.chunks*l.topo.Rounds() <= l.chunks+l.topo.Size-2
}

// forward notes chunks to be relayed: down their root's tree, or to the right neighbour unless it is the root.
func (c *Comm) forward(p *op, chunks chunkRange, probe bool) {
	root := p.rootOf(chunks.shard)
	s := stretch{seq: p.seq, chunkRange: chunks, probe: probe}
	if !p.byTree() {
		if s.rank = c.topo.Right(); s.rank != root {
			s.own = s.shard == p.own
			c.relayed.add(s)
		}
		return
	}
	// The farthest child has the most ranks below it.
	for j := c.topo.Children(root) - 1; j >= 0; j-- {
		s.rank, s.own = c.topo.Child(j), s.shard == p.own && j == 0
		c.relayed.add(s)
	}
}

// arrived learns from a chunk which ways there are, and passes it on if it came by relay. In an operation that all
// ranks relay it passes on a chunk the first time, however it came, since the right neighbour asks for nothing there.
// first: the chunk was not here.
func (c *Comm) arrived(p *op, shard int, h *wire.Data, first bool) {
	switch root := int(h.Root); {
	case h.IsRelay():
		p.viaRelay = true
		c.stats.Relayed++
		c.reach.relay(c.now, root, h.IsProbe())
	case h.IsMulticast():
		c.reach.multicast(c.now, root)
	case first:
		c.reach.repair(c.now, root)
	}
	if c.forwards(p, h, first) {
		c.forward(p, chunkRange{shard, int(h.PSN), int(h.PSN) + 1}, h.IsProbe())
	} else if first {
		p.unrelayed = true
	}
}

// forwards reports whether this rank relays a chunk that has come.
func (c *Comm) forwards(p *op, h *wire.Data, first bool) bool {
	if p.mode.relay {
		return first || h.IsProbe() // the neighbour wants to know of a probe that was multicast here first
	}
	return h.IsRelay()
}

// NextRelay returns a chunk to be relayed, and whether there is one. It stays the next one until
// Relayed.
func (c *Comm) NextRelay() (Repair, bool) {
	for c.err == nil && c.relayed.len() > 0 {
		s := c.relayed.items[c.relayed.head]
		p := c.ops.at(s.seq)
		if !c.mayLack(p, &s) {
			c.relayed.take(s.to - s.from)
			continue
		}
		if !p.receiver.have.Has(p.bit(s.shard, s.from)) {
			c.relayed.take(1)
			continue
		}
		m := p.control(wire.Relay)
		m.Root, m.PSN, m.Arena = uint16(p.rootOf(s.shard)), uint32(s.from), p.mode.arena
		m.Count, m.Bytes = uint32(p.bytes), uint64(p.length(s.from))
		if s.probe {
			m.Round = 1
		}
		return Repair{To: s.rank, Message: m, Place: p.place(s.shard, s.from)}, true
	}
	return Repair{}, false
}

// mayLack reports whether a rank may lack a stretch that is to be relayed to it: this rank still knows the operation as
// it was when the stretch was noted, and the right neighbour has not said that it has everything.
func (c *Comm) mayLack(p *op, s *stretch) bool {
	return p.seq == s.seq && p.state != free && p.known() && (!p.handshake.right || s.rank != c.topo.Right()) &&
		s.shard < p.shards && s.to <= p.chunks
}

// Relayed says that the chunk that NextRelay returned is on its way.
func (c *Comm) Relayed(r *Repair) {
	p := c.ops.at(r.Message.Seq)
	p.moved = c.now
	c.relayed.take(1)
	c.verify()
}

// relay makes a large operation a relayed one, before any chunk is sent here: all ranks know so once its barrier is
// complete.
func (c *Comm) relay(p *op) {
	p.mode.relay, p.mode.window = true, 0
	p.mode.chains = topology.NewChains(p.shards, p.shards)
	p.loss.reached, p.loss.gaps = p.loss.reached[:0], p.loss.gaps[:0]
	p.sender.turn = true
	for s := range p.shards {
		for psn := 0; p.unrelayed && s != p.own && psn < int(p.receiver.seen[s].end); psn++ {
			if p.receiver.have.Has(p.bit(s, psn)) {
				c.forward(p, chunkRange{s, psn, psn + 1}, false) // it came before this rank knew, perhaps not by relay
			}
		}
	}
}
