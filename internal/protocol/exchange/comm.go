// Package exchange carries messages from rank to rank: sends and receives with tags, and collectives that are made of
// them, such as all-to-all. A sender offers a message, the receiver grants it once a receive is posted that matches,
// and the bytes go straight to their memory; a grant is the credit for that. A small message comes behind its offer,
// and is kept where no receive waits. A send is done when the receiver has matched it and all bytes are on their way; a
// small part of a collective at once.
//
// Receives are matched in posting order with offers of the same rank and tag in their order. Like
// internal/protocol/multicast it has no clock, socket, goroutine or lock. Its driver, internal/engine, moves the bytes:
// out of Next into the stream to a rank (Sent), and out of the stream from a rank into Received or Into.
//
// The words are in docs/reference/glossary.md.
package exchange

import (
	"errors"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const (
	// Eager is up to how many bytes a message comes behind its offer.
	Eager = 8 << 10
	// Held is how many such bytes, at most, a rank sends to another before that has taken them.
	Held = 64 << 10
	// Piece is how many bytes of a message follow one head. Heads go between pieces; granted messages to one rank go one
	// after another.
	Piece = 1 << 20
)

// Comm is one rank's side.
type Comm struct {
	rank     int
	peers    []peer
	anywhere []*Transfer // posted receives from any rank, in posting order
	seq      uint64      // of receives
	offers   uint64      // that have come
	parts    uint64      // collectives that were posted
	calls    []call      // the last of these, see checkAwaited
	done     []*Transfer
	leaving  bool
	lent     uint64 // bytes that others have read in this rank's memory
	err      error
}

// peer is what is known of another rank, and on its way to it and from it.
type peer struct {
	out      outbound
	next     uint32               // number of the next offer
	offered  map[uint32]*Transfer // sends that were not granted or taken yet
	held     int                  // bytes of them that came behind their offers
	granted  []*Transfer          // sends, in the order in which they go
	in       inbound
	receives []*Transfer          // posted, and matched by no offer, in posting order
	expected map[uint32]*Transfer // receives that were granted
	early    []*offer             // that no receive has matched, in the order of their coming
	kept     int                  // bytes of them that came with them
	lends    bool                 // it may read this rank's memory
	reads    bool                 // this rank may read its memory
	reading  []*Transfer          // receives with bytes that this rank reads there
	awaited  []wire.Message       // its awaits of collectives that this rank has not begun
	left     bool
}

// offer is one that came before a receive that matches.
type offer struct {
	wire.Message
	from  int
	seq   uint64
	bytes []byte    // that came behind it
	have  int       // of them
	taker *Transfer // the receive that has matched it, while bytes are still to come
}

// New returns the state of a rank.
func New(rank, size int) *Comm {
	c := &Comm{rank: rank, peers: make([]peer, size)}
	for i := range c.peers {
		c.peers[i].offered, c.peers[i].expected = map[uint32]*Transfer{}, map[uint32]*Transfer{}
	}
	return c
}

// Share has this rank and another one read each other's memory, for what is posted from now on.
func (c *Comm) Share(with int) { c.peers[with].lends, c.peers[with].reads = true, true }

// LentBytes returns how many bytes other ranks have read from this rank's memory.
func (c *Comm) LentBytes() uint64 { return c.lent }

// Err returns why nothing can go on, or nil: a *direct.BrokenError, a *collective.MismatchError or a *LeftError.
func (c *Comm) Err() error { return c.err }

// Break ends everything: the stream of a rank is lost.
func (c *Comm) Break(rank int, err error) { c.fail(&direct.BrokenError{Rank: rank, Err: err}) }

func (c *Comm) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// NextDone returns a transfer that is done and removes it, or nil.
func (c *Comm) NextDone() *Transfer {
	if len(c.done) == 0 {
		return nil
	}
	t := c.done[0]
	c.done[0] = nil
	if c.done = c.done[1:]; len(c.done) == 0 {
		c.done = nil
	}
	return t
}

func (c *Comm) end(t *Transfer) {
	t.Done = true
	c.done = append(c.done, t)
}

// Post begins a send to another rank, or a receive.
func (c *Comm) Post(t *Transfer) {
	if t.Sends {
		c.offer(t)
		return
	}
	c.seq++
	t.seq, t.any = c.seq, t.Peer == AnySource
	if o := c.claim(t); o != nil {
		c.match(o, t)
		return
	}
	if t.any {
		c.anywhere = append(c.anywhere, t)
	} else {
		c.peers[t.Peer].receives = append(c.peers[t.Peer].receives, t)
	}
	c.checkLeft(t)
}

// Leave says farewell to all ranks. Nothing is posted any more.
func (c *Comm) Leave() {
	if c.leaving {
		return
	}
	c.leaving = true
	for r := range c.peers {
		if r != c.rank {
			c.tell(r, &wire.Message{Kind: wire.MessageBye})
		}
	}
}

// Leaving reports whether Leave was called.
func (c *Comm) Leaving() bool { return c.leaving }

// checkLeft fails if a transfer waits for ranks that have left.
func (c *Comm) checkLeft(t *Transfer) {
	what := "a receive"
	switch {
	case t.Of != wire.SendReceive:
		what = "a collective " + t.Of.String()
	case t.Sends:
		what = "a send"
	}
	if !t.any {
		if c.peers[t.Peer].left {
			c.fail(&LeftError{t.Peer, what})
		}
		return
	}
	last := -1
	for r := range c.peers {
		if r == c.rank {
			continue
		}
		if !c.peers[r].left {
			return
		}
		last = r
	}
	if last >= 0 {
		c.fail(&LeftError{last, what + " from any rank"})
	}
}

// hasLeft takes the farewell of a rank.
func (c *Comm) hasLeft(rank int) {
	p := &c.peers[rank]
	p.left = true
	for _, t := range p.receives {
		c.checkLeft(t)
	}
	for _, t := range p.offered {
		if !t.Done {
			c.checkLeft(t)
		}
	}
	for _, t := range c.anywhere {
		c.checkLeft(t)
	}
}

// claim takes the first offer that a receive matches, or nil.
func (c *Comm) claim(t *Transfer) *offer {
	if !t.any {
		return c.peers[t.Peer].claim(t)
	}
	var found *offer
	for r := range c.peers {
		for _, o := range c.peers[r].early {
			if o.taker == nil && t.matches(r, &o.Message) {
				if found == nil || o.seq < found.seq {
					found = o
				}
				break
			}
		}
	}
	if found == nil {
		return nil
	}
	return c.peers[found.from].claim(t)
}

func (p *peer) claim(t *Transfer) *offer {
	for i, o := range p.early {
		if o.taker == nil && t.matches(o.from, &o.Message) {
			if o.have == len(o.bytes) { // else the rest of its bytes is about to come
				p.early = slices.Delete(p.early, i, i+1)
			}
			return o
		}
	}
	return nil
}

// find takes the first posted receive that matches an offer, or nil.
func (c *Comm) find(from int, m *wire.Message) *Transfer {
	p := &c.peers[from]
	own := slices.IndexFunc(p.receives, func(t *Transfer) bool { return t.matches(from, m) })
	all := slices.IndexFunc(c.anywhere, func(t *Transfer) bool { return t.matches(from, m) })
	switch {
	case own >= 0 && (all < 0 || p.receives[own].seq < c.anywhere[all].seq):
		t := p.receives[own]
		p.receives = slices.Delete(p.receives, own, own+1)
		return t
	case all >= 0:
		t := c.anywhere[all]
		c.anywhere = slices.Delete(c.anywhere, all, all+1)
		return t
	}
	return nil
}

// fits fails unless a receive can take an offer: a send may be shorter, a part of a collective may not. If it can, it
// has its sender.
func (c *Comm) fits(from int, m *wire.Message, t *Transfer) bool {
	if m.Of == t.Of && (m.Bytes == uint64(len(t.Memory)) || m.Of == wire.SendReceive && m.Bytes < uint64(len(t.Memory))) {
		t.Peer = from
		return true
	}
	c.disagree(from, partText(m.Of, true, from, c.rank, int(m.Bytes)), partText(t.Of, false, c.rank, from, len(t.Memory)))
	return false
}

// match joins an offer that came early with its receive.
func (c *Comm) match(o *offer, t *Transfer) {
	if !c.fits(o.from, &o.Message, t) {
		return
	}
	switch {
	case !o.Follows:
		c.grant(o.from, &o.Message, t)
	case o.have < len(o.bytes):
		o.taker = t
	default:
		c.take(o, t)
	}
}

// take gives a receive the bytes that came with an offer.
func (c *Comm) take(o *offer, t *Transfer) {
	copy(t.Memory, o.bytes)
	c.peers[o.from].kept -= len(o.bytes)
	c.taken(o.from, o.Number, t, len(o.bytes))
}

func (c *Comm) taken(from int, number uint32, t *Transfer, bytes int) {
	t.Bytes = bytes
	c.tell(from, &wire.Message{Kind: wire.MessageTaken, Number: number})
	c.end(t)
}

// grant asks for the bytes of an offer.
func (c *Comm) grant(from int, m *wire.Message, t *Transfer) {
	p := &c.peers[from]
	t.number, t.Bytes, t.granted = m.Number, int(m.Bytes), true
	_, twice := p.expected[m.Number]
	if twice || slices.ContainsFunc(p.reading, func(t *Transfer) bool { return t.number == m.Number }) {
		c.Break(from, errTwice)
		return
	}
	if p.reads && m.Address != 0 {
		t.address = m.Address
		p.reading = append(p.reading, t)
		return
	}
	c.ask(from, t)
}

var errTwice = errors.New("it has offered two messages under one number")
