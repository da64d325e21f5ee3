package exchange

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// A sender's offers show what it has called. In a gather the root offers nothing, and in a scatter the others offer
// nothing. So a receiver there tells the sender that it awaits a part. No rank waits for that message. It shows where
// two ranks both gather, or both wait for the other one to scatter.

// call is a collective that this rank has begun.
type call struct {
	of    wire.Exchange
	sends bool // parts go from this rank
	peer  int  // the other rank; AnySource: all others
	bytes int  // of a part
	due   int  // ranks that have not said yet that they await a part
}

// remembered is how many of the last collectives an error can name.
const remembered = 16

// Collective begins a collective: all transfers of this rank, which get its number to tag them with. All ranks begin
// the same collectives in the same order.
func (c *Comm) Collective(of wire.Exchange, transfers []*Transfer) {
	number := c.parts
	c.parts++
	k := call{of: of, peer: AnySource}
	for _, t := range transfers {
		t.Of, t.Tag = of, number
		k.sends, k.peer, k.bytes = t.Sends, t.Peer, len(t.Memory)
		switch {
		case of == wire.AllToAll:
		case t.Sends:
			k.due++
		case !c.peers[t.Peer].left:
			c.tell(t.Peer, &wire.Message{Kind: wire.MessageAwait, Of: of, Tag: number, Bytes: uint64(len(t.Memory))})
		}
	}
	if len(transfers) > 1 {
		k.peer = AnySource
	}
	c.calls = append(c.calls, k)
	for _, t := range transfers {
		c.Post(t)
	}
	for r := range c.peers {
		for _, o := range c.peers[r].early {
			c.checkPart(o)
		}
		c.checkAwaited(r)
	}
}

// called returns what this rank has begun under a number; nil: it is forgotten.
func (c *Comm) called(number uint64) *call {
	if ago := c.parts - number; ago <= uint64(len(c.calls)) {
		return &c.calls[uint64(len(c.calls))-ago]
	}
	return nil
}

// checkPart looks for an offer of a collective that this rank has begun, and in which it takes nothing like that.
func (c *Comm) checkPart(o *offer) {
	if o.Of != wire.SendReceive && o.Tag < c.parts && o.taker == nil {
		c.disagree(o.from, partText(o.Of, true, o.from, c.rank, int(o.Bytes)), c.callText(o.Tag, o.from))
	}
}

// checkAwaited looks whether this rank has called what another one awaits parts of.
func (c *Comm) checkAwaited(from int) {
	p := &c.peers[from]
	for len(p.awaited) > 0 && p.awaited[0].Tag < c.parts {
		m := p.awaited[0]
		p.awaited = p.awaited[1:]
		k := c.called(m.Tag)
		if k == nil || !k.sends || k.of != m.Of || k.peer != from && k.peer != AnySource || uint64(k.bytes) != m.Bytes {
			c.disagree(from, partText(m.Of, false, from, c.rank, int(m.Bytes)), c.callText(m.Tag, from))
			return
		}
		k.due--
	}
	for len(c.calls) > remembered && c.calls[0].due == 0 {
		c.calls = c.calls[1:]
	}
}

// callText says what this rank has begun under a number, to another one.
func (c *Comm) callText(number uint64, other int) collective.Text {
	switch k := c.called(number); {
	case k == nil:
		return collective.Textf("a collective without rank %d", collective.Place(other))
	case k.of == wire.AllToAll:
		return collective.Textf("%v", k.of)
	case k.peer == AnySource:
		return partText(k.of, k.sends, c.rank, other, k.bytes)
	default:
		return partText(k.of, k.sends, c.rank, k.peer, k.bytes)
	}
}

// partText says what a rank called. One part of it goes to another rank, or comes from there.
func partText(of wire.Exchange, sends bool, rank, peer, bytes int) collective.Text {
	root := rank
	if sends == (of == wire.Gather) {
		root = peer
	}
	switch of {
	case wire.Gather:
		return collective.Textf("gather of %d bytes to rank %d", bytes, collective.Place(root))
	case wire.Scatter:
		return collective.Textf("scatter of %d bytes from rank %d", bytes, collective.Place(root))
	default:
		return text(of, sends, peer, bytes)
	}
}

// disagree fails because this rank and another one have called different things. All ranks say it alike.
func (c *Comm) disagree(with int, theirs, ours collective.Text) {
	e := &collective.MismatchError{Who: [2]int{with, c.rank}, What: [2]collective.Text{theirs, ours}}
	if c.rank < with {
		e = &collective.MismatchError{Who: [2]int{c.rank, with}, What: [2]collective.Text{ours, theirs}}
	}
	c.fail(e)
}
