package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// stream is the Broadcasts of one root, one behind the other, as far as they have no barrier
// (streamed). Their chunks count through: another rank lets the root send no further than a window
// ahead of what it has taken of the stream, nor beyond what it has posted itself, and says both by
// one limit. So a root has one window under way, however many Broadcasts that covers, and sends
// them in the order in which they were posted (docs/decisions/0035).
type stream struct {
	length int // chunks of all operations posted
	taken  int // chunks that this rank has taken off its queue, or sent; never falls
	sent   int // chunks before the end of the last operation that its root is known to have begun
	// first is the oldest operation that this rank has not passed, and last the newest: it passes one
	// when its last chunk, or a later one of the stream, has come.
	first, last uint32
	open        bool // there is one that it has not passed
}

// part is where an operation lies in its stream.
type part struct {
	of       *stream // nil: this rank is the root, or the operation is not streamed
	base     int     // chunks of the stream before it
	next     uint32  // the operation that follows
	follows  bool    // there is one
	admitted bool    // this rank has room for it
	// begun: its root is known to send it, so that a silence may be a loss. A rank learns that from
	// its parent in the root's tree, if no chunk comes sooner.
	begun     bool
	announced bool // those below know that, too
	// round counts how often roots have begun again from a lower one, as they do with each Allgather
	// that NCCL hands over in windows, and start is the length of each root's stream at its begin, if
	// they are no more than mostShares.
	round uint32
	start [mostShares]int
}

// round is the last one that has begun, see part.
type round struct {
	root   int // of the last operation
	number uint32
	start  [mostShares]int
}

// mostShares bounds the roots whose streams a rank takes at a time: so many share the window. NCCL
// has no more windows in flight, and so no more roots.
const mostShares = 8

// Shares returns how many roots' streams share the window, each with a few chunks at least.
func (c *Config) Shares() int { return max(1, min(c.Size, mostShares, c.Window/4)) }

// join puts an operation that was posted behind those of its root.
func (c *Comm) join(p *op) {
	if c.streams == nil {
		c.streams = make([]stream, c.cfg.Size)
	}
	if p.root < c.round.root {
		c.round.number++
		for r := range min(mostShares, c.cfg.Size) {
			c.round.start[r] = c.streams[r].length
		}
	}
	c.round.root = p.root
	s := &c.streams[p.root]
	p.part = part{base: s.length, round: c.round.number, start: c.round.start}
	if p.own >= 0 {
		p.part.admitted, p.part.begun = true, true
		s.length += p.chunks
		return
	}
	p.part.of = s
	if s.open {
		last := &c.ops.at(s.last).part
		last.next, last.follows = p.seq, true
	} else {
		s.first = p.seq
	}
	s.last, s.open = p.seq, true
	s.length += p.chunks
}

// limit returns up to which chunk of an operation this rank lets its root send, of most.
func (a *part) limit(window, most int) int {
	switch {
	case !a.admitted:
		return 0
	case a.of == nil:
		return most
	}
	return min(max(0, a.of.taken-a.base+window), most)
}

// passed reports whether this rank has passed an operation of a number.
func (a *part) passed(seq uint32) bool {
	return a.of == nil || !a.of.open || wire.Before(seq, a.of.first)
}

// take notes that this rank has taken the chunks of an operation before psn off its queue.
func (c *Comm) take(p *op, psn int) {
	s := p.part.of
	s.taken = max(s.taken, p.part.base+psn)
	c.grant(s)
}

// grant reports what limits of a stream have moved, up to the end of the window.
func (c *Comm) grant(s *stream) {
	for seq, more := s.first, s.open; more; {
		p := c.ops.at(seq)
		if !p.part.admitted {
			return
		}
		p.credit.report(&p.layout, &c.out, 0)
		seq, more = p.part.next, p.part.follows
		if end := p.part.base + p.chunks; s.taken >= end {
			s.first, s.open = seq, more
		} else if s.taken+p.mode.window <= end {
			return // nothing of the next one is within the window
		}
	}
}

// abreast returns up to which chunk of an operation this rank may send for the streams of others not
// to fall behind: where all ranks send, as far ahead of the least that has come of any as it may
// have under way, as with the chains of an Allgather (credit.abreast). Where one does not, the links
// of the others are full whoever sends.
//
// What counts is how far roots are in one round, which all ranks see alike, so the one that is
// furthest behind waits for nobody.
func (c *Comm) abreast(p *op, underWay int) int {
	bound := p.chunks
	for r := range c.streams {
		if r == c.cfg.Rank {
			continue
		}
		s := &c.streams[r]
		if s.taken >= s.sent || c.ops.at(s.first).part.round != p.part.round {
			return p.chunks
		}
		bound = min(bound, p.part.start[c.cfg.Rank]+s.taken-p.part.start[r]+underWay-p.part.base)
	}
	return bound
}

// begun notes that an operation's root sends it, and so has sent those before it in its stream: what
// is missing of them is lost, or was overtaken.
func (c *Comm) begun(p *op) {
	s := p.part.of
	for seq := s.first; s.open && wire.Before(seq, p.seq); {
		q := c.ops.at(seq)
		c.begin(q)
		if !q.received() {
			c.suspect(q, 0, 0, q.chunks)
		}
		seq = q.part.next
	}
	c.begin(p)
}

// passBegin tells those below this rank, once, that an operation's root sends it.
func (c *Comm) passBegin(p *op) {
	if p.part.announced {
		return
	}
	p.part.announced = true
	for j := range c.topo.Children(p.root) {
		m := p.control(wire.Begin)
		m.Root, m.Bytes = uint16(p.root), uint64(p.bytes)
		c.out.send(c.topo.Child(j), m)
	}
}

// hearBegin takes the word of the parent in the root's tree that an operation's root sends it.
func (c *Comm) hearBegin(p *op, from int, m *wire.Control) {
	if int(m.Root) >= c.cfg.Size || from != c.topo.Parent(int(m.Root)) || int(m.Root) == c.cfg.Rank {
		c.stats.Dropped++
		return
	}
	if !c.sameCall(p, from, m) {
		return
	}
	if p.part.of == nil { // different settings
		call := p.called().String()
		c.disagree(p, call+" with a barrier", from, call+" without one")
		return
	}
	p.moved = c.now
	c.passBegin(p)
	c.begun(p)
	c.verify()
}

// begin allows for silence in an operation to be taken for loss.
func (c *Comm) begin(p *op) {
	if !p.part.begun {
		p.part.begun = true
		p.part.of.sent = max(p.part.of.sent, p.part.base+p.chunks)
		c.arm(p)
	}
}
