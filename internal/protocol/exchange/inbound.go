package exchange

import (
	"errors"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// inbound is the stream from a rank: a head, then the bytes behind it.
type inbound struct {
	head  [wire.MessageSize]byte
	have  int       // bytes of the head
	body  []byte    // where what follows goes
	into  *Transfer // the receive that it is for
	early *offer    // that it came with, if no receive had matched that then
	offer uint32    // number of the offer that it came with, of into
	taken bool      // into's bytes came with their offer
}

// Into returns the memory to which the next bytes of the stream from a rank go, if they are a message's; else none.
func (c *Comm) Into(from int) []byte {
	if c.err != nil {
		return nil
	}
	return c.peers[from].in.body
}

// Filled says that so many bytes of Into have come.
func (c *Comm) Filled(from, n int) {
	in := &c.peers[from].in
	if in.body = in.body[n:]; len(in.body) == 0 {
		c.whole(from)
	}
}

// Received takes bytes from the stream of a rank.
func (c *Comm) Received(from int, b []byte) {
	in := &c.peers[from].in
	for len(b) > 0 && c.err == nil {
		if len(in.body) > 0 {
			n := copy(in.body, b)
			b = b[n:]
			c.Filled(from, n)
			continue
		}
		n := copy(in.head[in.have:], b)
		b = b[n:]
		if in.have += n; in.have < wire.MessageSize {
			return
		}
		in.have = 0
		var m wire.Message
		if err := m.Get(in.head[:]); err != nil {
			c.Break(from, err)
			return
		}
		c.handle(from, &m)
	}
}

// handle takes a head.
func (c *Comm) handle(from int, m *wire.Message) {
	p := &c.peers[from]
	switch m.Kind {
	case wire.MessageOffer:
		c.offered(from, m)
	case wire.MessageGrant:
		t := p.offered[m.Number]
		if t == nil || t.came {
			c.Break(from, fmt.Errorf("it has asked for message %d, which was not offered", m.Number))
			return
		}
		delete(p.offered, m.Number)
		t.granted = true
		p.granted = append(p.granted, t)
	case wire.MessageTaken:
		t := p.offered[m.Number]
		if t == nil || !t.came && t.address == 0 {
			c.Break(from, fmt.Errorf("it has taken message %d, which it was not given", m.Number))
			return
		}
		delete(p.offered, m.Number)
		if t.came {
			p.held -= len(t.Memory)
		} else {
			c.lent += uint64(len(t.Memory))
		}
		if !t.Done {
			c.end(t)
		}
	case wire.MessageData:
		t := p.expected[m.Number]
		if t == nil || m.Bytes == 0 || m.Bytes > uint64(t.Bytes-t.moved) {
			c.Break(from, fmt.Errorf("it has sent %d bytes of message %d, which were not asked for", m.Bytes, m.Number))
			return
		}
		p.in.body, p.in.into, p.in.taken = t.Memory[t.moved:][:m.Bytes], t, false
		t.moved += int(m.Bytes)
	case wire.MessageAwait:
		if m.Of != wire.Gather && m.Of != wire.Scatter {
			c.Break(from, fmt.Errorf("it awaits a part of what has none such: %v", m.Of))
			return
		}
		p.awaited = append(p.awaited, *m)
		c.checkAwaited(from)
	case wire.MessageBye:
		c.hasLeft(from)
	}
}

// offered takes an offer, and finds the receive that it is for.
func (c *Comm) offered(from int, m *wire.Message) {
	p := &c.peers[from]
	switch {
	case m.Follows && m.Bytes > Eager:
		c.Break(from, fmt.Errorf("it has sent %d bytes that were not asked for; allowed are %d", m.Bytes, Eager))
		return
	case !m.Follows && m.Bytes == 0:
		c.Break(from, errors.New("it has offered a message of no bytes, and not sent it along"))
		return
	}
	t := c.find(from, m)
	switch {
	case t == nil:
		c.keep(from, m)
	case !c.fits(from, m, t):
	case !m.Follows:
		c.grant(from, m, t)
	case m.Bytes == 0:
		c.taken(from, m.Number, t, 0)
	default:
		p.in.body, p.in.into, p.in.taken, p.in.offer = t.Memory[:m.Bytes], t, true, m.Number
		t.Bytes = int(m.Bytes)
	}
}

// keep remembers an offer until a receive matches it.
func (c *Comm) keep(from int, m *wire.Message) {
	p := &c.peers[from]
	c.offers++
	o := &offer{Message: *m, from: from, seq: c.offers}
	p.early = append(p.early, o)
	c.checkPart(o)
	if !m.Follows || m.Bytes == 0 || c.err != nil {
		return
	}
	if p.kept += int(m.Bytes); p.kept > Held {
		c.Break(from, fmt.Errorf("it has sent %d bytes that were not asked for; allowed are %d", p.kept, Held))
		return
	}
	o.bytes = make([]byte, m.Bytes)
	p.in.body, p.in.early = o.bytes, o
}

// whole is called when the bytes behind a head have come.
func (c *Comm) whole(from int) {
	p := &c.peers[from]
	in := &p.in
	if o := in.early; o != nil {
		in.early = nil
		o.have = len(o.bytes)
		if t := o.taker; t != nil {
			p.early = slices.DeleteFunc(p.early, func(other *offer) bool { return other == o })
			c.take(o, t)
		}
		return
	}
	t := in.into
	in.into = nil
	switch {
	case in.taken:
		c.taken(from, in.offer, t, t.Bytes)
	case t.moved == t.Bytes:
		delete(p.expected, t.number)
		c.end(t)
	}
}
