package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// offered takes the left neighbour's offer of chunks that this rank has asked for.
func (c *Comm) offered(p *op, m *wire.Control) {
	shard, root := -1, int(m.Root)
	if root < c.cfg.Size {
		shard = p.shard(root)
	}
	if c.cfg.Reads == 0 || !p.readable() || m.Collective != p.coll || m.Digest != p.digest || shard < 0 ||
		shard == p.own ||
		m.Count > mostOffered || uint64(m.PSN)+uint64(m.Count) > uint64(p.chunks) {
		c.stats.Dropped++
		return
	}
	o := offer{chunkRange{shard, int(m.PSN), int(m.PSN) + int(m.Count)}, m.Bytes, m.Arena}
	p.moved = c.now
	if c.unreadable {
		c.askAgain(p, o.chunkRange)
		return
	}
	c.offers += p.pulls.take(&p.layout, &p.receiver, o)
}

// NextRead puts chunks to be read from the left neighbour's memory into r and reports whether there are any. They stay
// the next ones until Reading.
func (c *Comm) NextRead(r *wire.Read) bool {
	if c.offers == 0 || c.err != nil {
		return false
	}
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		o, fewer := p.pulls.next(&p.layout, &p.receiver, c.cfg.Reads)
		if c.offers -= fewer; o.from == o.to {
			continue
		}
		m := p.control(wire.Repair)
		m.Root, m.PSN, m.Count = uint16(p.rootOf(o.shard)), uint32(o.from), uint32(p.bytes)
		*r = wire.Read{Head: wire.DataOf(&m), Count: o.to - o.from, Bytes: p.span(o.from, o.to), Addr: o.addr, Key: o.key}
		return true
	}
	return false
}

// Reading says that the chunks that NextRead returned are being read. ReadEnded follows, if the communicator does not
// fail.
func (c *Comm) Reading(r *wire.Read) {
	p := c.ops.at(r.Head.Seq)
	c.offers -= p.pulls.begin(&p.layout, r.Count)
	c.verify()
}

// ReadEnded says that a read has ended: well, and then its chunks were Placed and Received; or it has failed. After
// that no other would do better, and all is asked for to be pushed.
func (c *Comm) ReadEnded(now Time, r *wire.Read, well bool) {
	c.tick(now)
	if c.err != nil {
		return
	}
	p := c.ops.at(r.Head.Seq)
	first := int(r.Head.PSN)
	chunks := chunkRange{p.shard(int(r.Head.Root)), first, first + r.Count}
	p.pulls.end(&p.layout, chunks)
	p.moved = c.now
	if !well {
		c.pushAll()
		c.askAgain(p, chunks)
	}
	c.advance()
}

// askAgain asks for chunks that were offered.
func (c *Comm) askAgain(p *op, chunks chunkRange) {
	c.ask(p, request{chunkRange: chunks, certain: true, again: true})
}

// pushAll asks for all that was offered and is not being read to be pushed.
func (c *Comm) pushAll() {
	c.unreadable = true
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		for o, ok := p.pulls.forget(&p.layout); ok; o, ok = p.pulls.forget(&p.layout) {
			c.offers--
			c.askAgain(p, o.chunkRange)
		}
	}
}
