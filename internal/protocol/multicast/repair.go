package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// NextRepair returns a chunk that the right neighbour has asked for and this rank holds, and
// whether there is one. It stays the next one until Repaired.
func (c *Comm) NextRepair() (Repair, bool) {
	if c.backlog.chunks == 0 || c.err != nil {
		return Repair{}, false
	}
	p := c.ops.at(c.backlog.first)
	for p.repairs.owed == 0 {
		c.backlog.first++
		p = c.ops.at(c.backlog.first)
	}
	bit := p.repairs.next(&p.receiver)
	shard, psn := bit/p.chunks, bit%p.chunks
	m := p.control(wire.Repair)
	m.Root, m.PSN = uint16(p.rootOf(shard)), uint32(psn)
	m.Count, m.Bytes = uint32(p.bytes), uint64(p.length(psn))
	r := Repair{To: c.topo.Right(), Message: m, Place: p.place(shard, psn)}
	// The neighbour's handshake ends its reads as well.
	if c.cfg.Reads > 0 && !c.pushes && p.readable() && p.state == active {
		r.Offer = p.repairs.run(&p.receiver, bit, min(mostOffered, p.chunks-psn))
		r.Span = p.span(psn, psn+r.Offer)
	}
	return r, true
}

// Repaired says that the chunk that NextRepair returned is on its way.
func (c *Comm) Repaired(r *Repair) {
	p := c.ops.at(r.Message.Seq)
	p.moved = c.now
	if p.repairs.sent(p.bit(p.shard(int(r.Message.Root)), int(r.Message.PSN))) {
		c.backlog.remove(1)
	}
	c.verify()
}

// Offered says that the chunks that NextRepair returned are on their way as an offer.
func (c *Comm) Offered(r *Repair) {
	p := c.ops.at(r.Message.Seq)
	p.moved = c.now
	first := p.bit(p.shard(int(r.Message.Root)), int(r.Message.PSN))
	for bit := first; bit < first+r.Offer; bit++ {
		if p.repairs.sent(bit) {
			c.backlog.remove(1)
		}
	}
	c.verify()
}
