package incnet

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// pipe is a path of datagrams from one end to another, with a queue of its own at the receiver. A
// datagram that arrives goes to the receiver that is there by then, as at an address that is used
// again: the job's number tells sessions apart.
type pipe struct {
	s        *sim
	from, to int   // hosts
	queue    int32 // at the receiver
	added    [][]byte
	unread   int // contributions that were sent and not taken off the queue
	take     func(data []byte)
}

// add puts a datagram with those to send. It has no room at random, so that batches have any
// length.
func (p *pipe) add(h *wire.Slot, payload []byte) bool {
	if len(p.added) > 0 && p.s.rng.IntN(4) == 0 {
		return false
	}
	data := make([]byte, wire.SlotSize+len(payload))
	h.Put(data)
	copy(data[wire.SlotSize:], payload)
	p.added = append(p.added, data)
	return true
}

// flush puts what was added on its way, until room says that there is none for a datagram.
func (p *pipe) flush(room func(kind wire.SlotKind) bool) (sent int) {
	for _, data := range p.added {
		h := headOf(data)
		if !room(h.Kind) {
			break
		}
		p.send(&h, data)
		sent++
	}
	p.added = p.added[:0]
	return sent
}

func headOf(data []byte) (h wire.Slot) {
	if err := h.Get(data[:wire.SlotSize]); err != nil {
		panic(err) // it was made here
	}
	return h
}

// send puts a datagram on its way.
func (p *pipe) send(h *wire.Slot, data []byte) {
	s := p.s
	s.result.Datagrams++
	if contributes(h.Kind) {
		p.unread++
		s.result.Unread = max(s.result.Unread, p.unread)
	}
	if s.Net.Forge > 0 && s.rng.Float64() < s.Net.Forge {
		q := s.forge(data)
		s.after(s.Net.Delay+upTo(s.rng, s.Net.Jitter), func() { p.take(q) })
	}
	if s.Net.Drop != nil && s.Net.Drop(h, slotsOf(data)) {
		s.dropped++
		return
	}
	d := s.net.Packet()
	d.From, d.To, d.Group, d.Bytes = int32(p.from), int32(p.to), p.queue, int32(len(data))
	d.Body = &arrival{p, data}
	s.net.Send(d)
}

// contributes reports whether a datagram takes of what a member may have unread.
func contributes(kind wire.SlotKind) bool { return kind == wire.Contribution || kind == wire.Kept }

// slotsOf is how many slots a datagram is about.
func slotsOf(data []byte) int {
	var k wire.SlotKept
	if h := headOf(data); h.Kind == wire.Kept && k.Get(data[wire.SlotSize:]) == nil {
		return int(k.Slots)
	}
	return 1
}

// arrival is a datagram on its way.
type arrival struct {
	*pipe
	data []byte
}

// arrive takes a datagram off the receiver's queue.
func (a *arrival) arrive() {
	if h := headOf(a.data); contributes(h.Kind) {
		a.unread--
	}
	a.take(a.data)
	if s := a.s; s.Net.Late > 0 && s.rng.Float64() < s.Net.Late {
		s.after(upTo(s.rng, lateness), func() { a.take(a.data) })
	}
}

// rankPath is a rank's path to its node in one session. It implements fabric.Switch.
type rankPath struct {
	*rank
	inbox [][]byte
}

var _ fabric.Switch = (*rankPath)(nil)

// Add implements fabric.Switch.
func (p *rankPath) Add(h *wire.Slot, payload []byte) bool { return p.up[h.Stripe].add(h, payload) }

// Flush implements fabric.Switch.
func (p *rankPath) Flush(stripe int) (int, error) {
	for _, data := range p.up[stripe].added {
		if h := headOf(data); h.Kind == wire.Contribution {
			p.s.result.Sent += len(data) - wire.SlotSize
		}
	}
	return p.up[stripe].flush(func(wire.SlotKind) bool { return true }), nil
}

// Receive implements fabric.Switch. A payload may come to the hint, as a socket may that must be
// told before: a wrong guess spoils what nobody has read yet.
func (p *rankPath) Receive(stripe int, hint []byte, _ int, to fabric.SlotSink) (int, error) {
	for i, data := range p.inbox {
		h := headOf(data)
		if int(h.Stripe) != stripe {
			continue
		}
		p.inbox = append(p.inbox[:i], p.inbox[i+1:]...)
		payload := p.s.land(data[wire.SlotSize:], hint)
		before := p.reduce.Stats().Dropped
		to.Slot(&h, payload)
		if h.Kind == wire.Result && p.reduce.Stats().Dropped == before {
			p.s.progress = p.s.net.Now()
		}
		return 1, nil
	}
	return 0, nil
}

// land returns the payload where it was received: in the hint or not.
func (s *sim) land(payload, hint []byte) []byte {
	if len(hint) < len(payload) || s.rng.IntN(2) == 0 {
		return payload
	}
	return hint[:copy(hint, payload)]
}

// Sleep implements fabric.Switch.
func (*rankPath) Sleep(time.Duration) {}

// Wake implements fabric.Switch.
func (*rankPath) Wake() {}

// Stats implements fabric.Switch.
func (*rankPath) Stats() fabric.Stats { return fabric.Stats{} }

// Close implements fabric.Switch.
func (*rankPath) Close() error { return nil }

// branch is a stage's path to a member, or to its parent. It implements node.Link.
type branch struct {
	*pipe
	stage  *stage
	member int
	inbox  [][]byte
	full   bool
}

var _ node.Link = (*branch)(nil)

// Receive implements node.Link.
func (b *branch) Receive(hint []byte) bool {
	if len(b.inbox) == 0 {
		return false
	}
	data := b.inbox[0]
	b.inbox = b.inbox[1:]
	h := headOf(data)
	b.stage.Charge(len(data))
	b.stage.Take(b.member, &h, b.s.land(data[wire.SlotSize:], hint))
	return true
}

// Writable implements node.Link.
func (b *branch) Writable() bool { return !b.full }

// Add implements node.Link.
func (b *branch) Add(h *wire.Slot, payload []byte) bool { return b.add(h, payload) }

// Flush implements node.Link. Elements may find the socket full, for as long as half the delay.
func (b *branch) Flush() int {
	s := b.s
	return b.flush(func(kind wire.SlotKind) bool {
		data := kind == wire.Result || kind == wire.Contribution || kind == wire.Kept
		if !data || s.Net.Full == 0 || s.rng.Float64() >= s.Net.Full {
			return true
		}
		b.full = true
		s.after(s.Net.Delay/2, func() {
			b.full = false
			b.stage.round()
		})
		return false
	})
}
