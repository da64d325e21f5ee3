package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// gathered reports whether the last lap is one that is sent together.
func (c *Comm) gathered() bool {
	if c.cfg.Share() == c.cfg.Window {
		return false
	}
	start := &c.laps.of(c.laps.last).start
	for r := range c.series {
		s := &c.series[r]
		if r != c.cfg.Rank && (!s.open || c.ops.at(s.first).link.base != start[r]) {
			return false
		}
	}
	return true
}

// allSend reports whether all other ranks still have a series in flight here.
func (c *Comm) allSend() bool {
	for r := range c.series {
		if r != c.cfg.Rank && !c.series[r].open {
			return false
		}
	}
	return true
}

// together reports whether an operation's lap is sent together.
func (c *Comm) together(p *op) bool { return c.laps.of(p.link.lap).together }

// Together reports whether an operation in flight is one that all ranks send at the same time.
func (c *Comm) Together(seq uint32) bool {
	p := c.ops.at(seq)
	return p.coll == wire.Allgather || p.mode.kind == serial && c.together(p)
}

// join puts an operation that was posted behind those of its root.
func (c *Comm) join(p *op) {
	if c.series == nil {
		c.series = make([]series, c.cfg.Size)
	}
	if p.root < c.lastRoot {
		c.laps.last++
		lap := c.laps.of(c.laps.last)
		lap.together = false
		for r := range min(mostShares, c.cfg.Size) {
			lap.start[r] = c.series[r].length
		}
	}
	c.lastRoot = p.root
	s := &c.series[p.root]
	p.link = link{base: s.length, lap: c.laps.last}
	s.length += p.chunks
	if p.own >= 0 {
		p.link.admitted, p.link.sending = true, true
		return
	}
	p.link.of = s
	if s.open {
		last := &c.ops.at(s.last).link
		last.next, last.follows = p.seq, true
	} else {
		s.first = p.seq
	}
	s.last, s.open = p.seq, true
	if lap := c.laps.of(c.laps.last); !lap.together {
		lap.together = c.gathered()
	}
}

// take notes that this rank has taken the chunks of an operation before psn off its queue.
func (c *Comm) take(p *op, psn int) {
	s := p.link.of
	s.taken = max(s.taken, p.link.base+psn)
	c.grant(s)
}

// grant reports what limits of a series have moved, up to the end of the window.
func (c *Comm) grant(s *series) {
	for seq, more := s.first, s.open; more; {
		p := c.ops.at(seq)
		if !p.link.admitted {
			return
		}
		c.askByCredit(p)
		p.credit.report(&p.layout, &c.out, 0)
		seq, more = p.link.next, p.link.follows
		if end := p.link.base + p.chunks; s.taken >= end {
			s.first, s.open = seq, more
		} else if s.taken+p.mode.window <= end {
			return // nothing of the next one is within the window
		}
	}
}

// serialBound returns up to which chunk of an operation this rank may send with so many under way, as
// far as its own series and those of others go. received: all older operations have been received
// here. Its own go out in order: what follows a chunk shows that it is lost.
func (c *Comm) serialBound(p *op, underWay int, received bool) int {
	switch {
	case c.series[c.cfg.Rank].taken < p.link.base:
		return 0
	case c.relays():
		if p.credit.room(&p.layout) == 0 {
			return 0
		}
		return p.chunks // all have posted it, and no queue can overflow
	case c.together(p):
		if c.allSend() {
			underWay = min(underWay, p.mode.share)
		}
		return min(p.credit.bound(&p.layout, underWay), c.abreast(p, underWay))
	case received:
		return p.credit.bound(&p.layout, underWay)
	}
	return 0
}

// abreast returns up to which chunk of an operation this rank may send so that the series of others do not fall behind.
// Where all ranks send, that is as far ahead of the least that has come of any as this rank may have under way, as with
// the chains of an Allgather (credit.abreast). Where one rank does not send, the links of the others are full anyway.
//
// What counts is how far roots are in one lap, which all ranks see alike, so the one that is
// furthest behind waits for nobody.
func (c *Comm) abreast(p *op, underWay int) int {
	bound, start := p.chunks, &c.laps.of(p.link.lap).start
	for r := range c.series {
		if r == c.cfg.Rank {
			continue
		}
		s := &c.series[r]
		if s.taken >= s.known || c.ops.at(s.first).link.lap != p.link.lap {
			return p.chunks
		}
		bound = min(bound, start[c.cfg.Rank]+s.taken-start[r]+underWay-p.link.base)
	}
	return bound
}

// sentSerial notes that the first n chunks of an operation are on their way. With the first of them it tells the ranks
// below this one.
func (c *Comm) sentSerial(p *op, n int) {
	s := &c.series[c.cfg.Rank]
	if s.taken = p.link.base + n; !p.link.announced {
		// Credit for chunks before these that are still on their way says nothing about how long credit takes.
		p.sender.progress.behind = s.known+p.credit.floor < p.link.base
		c.announce(p)
	}
}

// announce tells the ranks below this one, once, that an operation's root sends it.
func (c *Comm) announce(p *op) {
	if p.link.announced {
		return
	}
	p.link.announced = true
	for j := range c.topo.Children(p.root) {
		m := p.control(wire.Begin)
		m.Root, m.Bytes = uint16(p.root), uint64(p.bytes)
		c.out.send(c.topo.Child(j), m)
	}
}

// takeBegin takes the message of the parent in the root's tree that an operation's root sends it.
func (c *Comm) takeBegin(p *op, from int, m *wire.Control) {
	if int(m.Root) >= c.cfg.Size || from != c.topo.Parent(int(m.Root)) || int(m.Root) == c.cfg.Rank {
		c.stats.Dropped++
		return
	}
	if !c.sameCall(p, from, m) {
		return
	}
	if p.link.of == nil { // different settings
		c.disagreeHow(p, from, "with a barrier", "without one")
		return
	}
	p.moved = c.now
	c.announce(p)
	c.markSending(p, false)
	c.verify()
}

// markSending notes that an operation's root sends it, and so has sent the ones before it in its series. inOrder: a
// chunk shows that, and it keeps the order of the series: it came by multicast or by relay, and is no repair and no
// probe. It has overtaken all missing chunks of the ones before, unless they are lost. A repair, a probe or a message
// may have overtaken them anyway.
func (c *Comm) markSending(p *op, inOrder bool) {
	s := p.link.of
	for seq := s.first; s.open && wire.Before(seq, p.seq); {
		q := c.ops.at(seq)
		c.markOne(q)
		if inOrder && !q.received() {
			c.suspect(q, chunkRange{0, 0, q.chunks})
		}
		seq = q.link.next
	}
	c.markOne(p)
}

func (c *Comm) markOne(p *op) {
	if !p.link.sending {
		p.link.sending = true
		p.link.of.known = max(p.link.of.known, p.link.base+p.chunks)
		c.arm(p)
	}
}
