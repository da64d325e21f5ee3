package exchange

import (
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// outbound is the stream to a rank: heads, with what comes behind them, and then a piece of a message.
type outbound struct {
	waiting []byte // heads that were not put in line yet
	line    []byte // bytes that go next
	spare   []byte // memory of line
	body    []byte // of the first granted message, behind them
}

// tell puts a head in line for a rank.
func (c *Comm) tell(to int, m *wire.Message) {
	o := &c.peers[to].out
	o.waiting = m.Append(o.waiting)
}

// offer tells a rank of a message, which comes along if it is small and the rank has room for it.
func (c *Comm) offer(t *Transfer) {
	p := &c.peers[t.Peer]
	for p.offered[p.next] != nil { // after 2^32 offers one may be left
		p.next++
	}
	t.number = p.next
	p.next++
	p.offered[t.number] = t
	m := wire.Message{
		Kind: wire.MessageOffer, Of: t.Of, Number: t.number, Tag: t.Tag, Bytes: uint64(len(t.Memory)),
		Follows: len(t.Memory) <= Eager && p.held+len(t.Memory) <= Held,
	}
	t.came = m.Follows
	if p.lends && len(t.Memory) >= Lent {
		m.Address = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(t.Memory))))
		t.address = m.Address
	}
	c.tell(t.Peer, &m)
	if m.Follows {
		p.held += len(t.Memory)
		p.out.waiting = append(p.out.waiting, t.Memory...)
	}
	if c.checkLeft(t); m.Follows && t.Of != wire.SendReceive {
		c.end(t) // all that it was to send is copied, and nobody asks of a part whether it was matched
	}
}

// Next returns the next bytes of the stream to a rank, or none. They are valid until the next call for that rank.
func (c *Comm) Next(to int) []byte {
	p := &c.peers[to]
	o := &p.out
	switch {
	case c.err != nil:
		return nil
	case len(o.line) > 0:
		return o.line
	case len(o.body) > 0:
		return o.body
	}
	o.line, o.waiting, o.spare = o.waiting, o.spare[:0], o.waiting
	if len(p.granted) > 0 {
		t := p.granted[0]
		rest := t.Memory[t.moved:]
		o.body = rest[:min(len(rest), Piece)]
		m := wire.Message{Kind: wire.MessageData, Number: t.number, Bytes: uint64(len(o.body))}
		o.line = m.Append(o.line)
		o.spare = o.line
	}
	if len(o.line) > 0 {
		return o.line
	}
	return nil
}

// Sent says that the first n bytes of what Next has just returned are in the stream.
func (c *Comm) Sent(to, n int) {
	p := &c.peers[to]
	o := &p.out
	if len(o.line) > 0 {
		o.line = o.line[n:]
		return
	}
	o.body = o.body[n:]
	t := p.granted[0]
	if t.moved += n; t.moved == len(t.Memory) {
		p.granted[0] = nil
		p.granted = p.granted[1:]
		c.end(t)
	}
}

// Sending reports whether something waits to be sent to a rank.
func (c *Comm) Sending(to int) bool {
	p := &c.peers[to]
	return len(p.out.line)+len(p.out.waiting)+len(p.out.body)+len(p.granted) > 0
}
