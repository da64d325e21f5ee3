package incnet

import (
	"bytes"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// pipe is a path of datagrams from one end to another, with a queue of its own at the receiver. A
// datagram that arrives goes to the receiver that is there by then, as at an address that is used
// again: the job's number tells sessions apart.
type pipe struct {
	s        *sim
	from, to int // hosts
	number   int // of the link at the receiver
	stripe   int
	added    []*datagram
	unread   int // contributions that were sent and not taken off the queue
}

// datagram is what travels.
type datagram struct {
	head    wire.Slot
	payload []byte
}

// contributes reports whether a datagram takes of what a member may have unread.
func (d *datagram) contributes() bool {
	return d.head.Kind == wire.Contribution || d.head.Kind == wire.Kept
}

// slots is how many slots a datagram is about.
func (d *datagram) slots() int {
	var k wire.SlotKept
	if d.head.Kind == wire.Kept && k.Get(d.payload) == nil {
		return int(k.Slots)
	}
	return 1
}

// Add implements fabric.Switch and node.Link. It has no room at random, so that batches have any length.
func (p *pipe) Add(h *wire.Slot, payload []byte) bool {
	if len(p.added) > 0 && p.s.rng.IntN(4) == 0 {
		return false
	}
	p.added = append(p.added, &datagram{*h, bytes.Clone(payload)})
	return true
}

// flush puts what was added on its way, until there is no room for a datagram.
func (p *pipe) flush(full func(*datagram) bool) (sent int) {
	for _, d := range p.added {
		if full(d) {
			break
		}
		p.send(d)
		sent++
	}
	p.added = p.added[:0]
	return sent
}

// send puts a datagram on its way.
func (p *pipe) send(d *datagram) {
	s := p.s
	s.result.Datagrams++
	if d.contributes() {
		p.unread++
		s.result.Unread = max(s.result.Unread, p.unread)
	}
	if d.head.Kind == wire.Contribution && p.from < s.Terms.Ranks {
		s.result.Sent += len(d.payload)
	}
	if s.Net.Forge > 0 && s.rng.Float64() < s.Net.Forge {
		q := s.forge(d)
		s.after(s.Net.Delay+upTo(s.rng, s.Net.Jitter), func() { p.take(q) })
	}
	if s.Net.Drop != nil && s.Net.Drop(&d.head, d.slots()) {
		s.dropped++
		return
	}
	s.post(p.from, p.to, p.number*s.Terms.Stripes+p.stripe, wire.SlotSize+len(d.payload), false, func() { p.arrive(d) })
}

// arrive takes a datagram off the receiver's queue.
func (p *pipe) arrive(d *datagram) {
	if d.contributes() {
		p.unread--
	}
	p.take(d)
	if s := p.s; s.Net.Late > 0 && s.rng.Float64() < s.Net.Late {
		s.after(upTo(s.rng, lateness), func() { p.take(d) })
	}
}

// take hands a datagram to the receiver.
func (p *pipe) take(d *datagram) {
	if n := p.to - p.s.Terms.Ranks; n >= 0 {
		p.s.nodes[n][p.stripe].receive(p.number, d)
	} else {
		p.s.ranks[p.to].receive(d)
	}
}

// land returns the payload where it was received: in the hint or not.
func (s *sim) land(payload, hint []byte) []byte {
	if len(hint) < len(payload) || s.rng.IntN(2) == 0 {
		return payload
	}
	return hint[:copy(hint, payload)]
}

// rankPath is a rank's path to its node in one session. It implements fabric.Switch.
type rankPath struct {
	network.Idle
	*rank
	up      []*pipe   // by stripe
	arrived *datagram // what the engine is to read; nil: nothing
}

var _ fabric.Switch = (*rankPath)(nil)

// Add implements fabric.Switch.
func (p *rankPath) Add(h *wire.Slot, payload []byte) bool { return p.up[h.Stripe].Add(h, payload) }

// Flush implements fabric.Switch.
func (p *rankPath) Flush(stripe int) (int, error) {
	return p.up[stripe].flush(func(*datagram) bool { return false }), nil
}

// Receive implements fabric.Switch. A payload may come to the hint, as a socket may that must be
// told before: a wrong guess spoils what nobody has read yet.
func (p *rankPath) Receive(stripe int, hint []byte, _ int, to fabric.SlotSink) (int, error) {
	d := p.arrived
	if d == nil || int(d.head.Stripe) != stripe {
		return 0, nil
	}
	p.arrived = nil
	h, before := d.head, p.reduce.Stats().Dropped
	to.Slot(&h, p.s.land(d.payload, hint))
	if h.Kind == wire.Result && p.reduce.Stats().Dropped == before {
		p.s.progress = p.s.net.Now()
	}
	return 1, nil
}

// branch is a stage's path to a member, or to its parent. It implements node.Link.
type branch struct {
	*pipe
	stage   *stage
	member  int // or innetwork.Up
	arrived *datagram
	full    bool
}

var _ node.Link = (*branch)(nil)

// Receive implements node.Link.
func (b *branch) Receive(hint []byte) bool {
	d := b.arrived
	if d == nil {
		return false
	}
	b.arrived = nil
	h := d.head
	b.stage.Charge(wire.SlotSize + len(d.payload))
	b.stage.Take(b.member, &h, b.s.land(d.payload, hint))
	return true
}

// Writable implements node.Link.
func (b *branch) Writable() bool { return !b.full }

// Flush implements node.Link. Elements may find the socket full, for as long as half the delay.
func (b *branch) Flush() int {
	s := b.s
	return b.flush(func(d *datagram) bool {
		elements := d.head.Kind == wire.Result || d.contributes()
		if !elements || s.Net.Full == 0 || s.rng.Float64() >= s.Net.Full {
			return false
		}
		b.full = true
		s.after(s.Net.Delay/2, func() {
			b.full = false
			b.stage.round()
		})
		return true
	})
}
