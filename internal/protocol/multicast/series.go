package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// series is the Broadcasts of one root, one behind the other, as far as credit says who is ready (kind serial). Their
// chunks count through. Another rank gives the root one limit: a window ahead of the chunks that the other rank has
// taken of the series, but not beyond the operations that the other rank has posted. So a root has one window under
// way, however many Broadcasts that covers, and sends them in the order in which they were posted
// (docs/decisions/0035).
type series struct {
	length int // chunks of all operations posted
	taken  int // chunks that this rank has taken off its queue, or sent; never falls
	// known is the end of the last operation that its root is known to send; of this rank's own, up
	// to where all others have taken it.
	known int
	// first is the oldest operation that this rank is not through with, and last the newest: it is
	// through when the last chunk, or a later one of the series, has come. Not of this rank's own.
	first, last uint32
	open        bool // there is one
}

// link is where an operation lies in its series.
type link struct {
	of       *series // of another root; nil: there is none, or this rank is the root
	base     int     // chunks of the series before it
	next     uint32  // the operation that follows
	follows  bool    // there is one
	admitted bool    // this rank's queue has room for it; only after all before it in posting order
	// expected: its root is known to send it, so that a silence may be a loss. A rank learns that
	// from its parent in the root's tree, if no chunk comes sooner.
	expected  bool
	announced bool // those below know that, too
	lap       uint32
}

// lap is a run of posted Broadcasts. A new lap begins where roots begin again from a lower one, as they do with each
// Allgather that NCCL hands over in windows. Laps are numbered; no more than MaxInFlight are in flight.
type lap struct {
	start [mostShares]int // chunks of each root's series before it, if they are no more
	// together: Broadcasts of all roots were in flight here before this rank was through with one. Only then do links
	// carry more if roots send at the same time, and they do, each with a share of the window. Else roots take turns in
	// the order in which Broadcasts were posted, each with all of the window: overlapping Broadcasts would fill the
	// receivers' links no better, and load the sending links of several roots, which a Reduce-Scatter could use
	// (docs/decisions/0037).
	together bool
}

// laps are the last ones that have begun.
type laps struct {
	last uint32
	at   [collective.MaxInFlight]lap // by number
}

func (l *laps) of(number uint32) *lap { return &l.at[number%collective.MaxInFlight] }

// mostShares bounds the roots that send at a time. NCCL has no more windows in flight, and so no more
// roots.
const mostShares = 8

// Share returns how much of the window a series has while all ranks send one. It is all of the window where the ranks
// never all send at the same time, since there are too many ranks or too few chunks for each.
func (c *Config) Share() int {
	if share := c.Window / c.Size; c.Size <= mostShares && share >= 4 {
		return share
	}
	return c.Window
}

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
		p.link.admitted, p.link.expected = true, true
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

// limit returns up to which chunk of an operation this rank lets its root send, of most.
func (a *link) limit(window, most int) int {
	switch {
	case !a.admitted:
		return 0
	case a.of == nil:
		return most
	}
	return min(max(0, a.of.taken-a.base+window), most)
}

// through reports whether this rank is through with an operation of a number.
func (a *link) through(seq uint32) bool {
	return a.of == nil || !a.of.open || wire.Before(seq, a.of.first)
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

// sentSerial notes that the first n chunks of an operation are on their way, and tells those below
// with the first of them.
func (c *Comm) sentSerial(p *op, n int) {
	s := &c.series[c.cfg.Rank]
	if s.taken = p.link.base + n; !p.link.announced {
		// Credit for chunks before these that are still on their way says nothing about how long credit takes.
		p.sender.progress.behind = s.known+p.credit.floor < p.link.base
		c.announce(p)
	}
}

// announce tells those below this rank, once, that an operation's root sends it.
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

// hearBegin takes the word of the parent in the root's tree that an operation's root sends it.
func (c *Comm) hearBegin(p *op, from int, m *wire.Control) {
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
	c.expect(p, false)
	c.verify()
}

// expect notes that an operation's root sends it, and so has sent the ones before it in its series. shown: a chunk says
// so that keeps the order of the series: one by multicast or by relay, no repair and no probe. It has overtaken all
// missing chunks of the ones before, unless they are lost. A repair, a probe or a message may have overtaken them
// anyway.
func (c *Comm) expect(p *op, shown bool) {
	s := p.link.of
	for seq := s.first; s.open && wire.Before(seq, p.seq); {
		q := c.ops.at(seq)
		c.expectOne(q)
		if shown && !q.received() {
			c.suspect(q, 0, 0, q.chunks)
		}
		seq = q.link.next
	}
	c.expectOne(p)
}

func (c *Comm) expectOne(p *op) {
	if !p.link.expected {
		p.link.expected = true
		p.link.of.known = max(p.link.of.known, p.link.base+p.chunks)
		c.arm(p)
	}
}
