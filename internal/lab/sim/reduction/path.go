package reduction

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// path is a host's way to its leaves, with a socket for each stripe. It implements fabric.Switch.
type path struct {
	network.Idle
	host    *Host
	sockets []*socket // by stripe
	lanes   []*lane
	arrived *Packet // what the engine is to read; nil: nothing
	result  bool    // the engine has read a result last
}

var _ fabric.Switch = (*path)(nil)

func newPath(h *Host) *path {
	p := &path{host: h}
	for i := range h.job.terms.Stripes {
		plan := h.job.plan(i)
		s := &socket{host: h, leaf: plan.leaf[h.rank], tree: h.job.treeOf(i)}
		s.lane = p.lane(h.job.tree.Ports[plan.port[h.rank]].Rail)
		s.lane.last = len(s.lane.sockets) // so that the first has the first turn
		s.lane.sockets = append(s.lane.sockets, s)
		p.sockets = append(p.sockets, s)
	}
	return p
}

// lane returns the lane of a rail, a new one if there is none.
func (p *path) lane(rail int) *lane {
	if i := slices.IndexFunc(p.lanes, func(l *lane) bool { return l.rail == rail }); i >= 0 {
		return p.lanes[i]
	}
	l := &lane{host: p.host, rail: rail, tag: wakeLane + uint64(len(p.lanes))}
	p.lanes = append(p.lanes, l)
	return l
}

// Add implements fabric.Switch.
func (p *path) Add(h *wire.Slot, payload []byte) bool { return p.sockets[h.Stripe].add(h, payload) }

// Flush implements fabric.Switch.
func (p *path) Flush(stripe int) (int, error) { return p.sockets[stripe].flush(), nil }

// Receive implements fabric.Switch.
func (p *path) Receive(stripe int, _ []byte, _ int, to fabric.SlotSink) (int, error) {
	b := p.arrived
	if b == nil || int(b.head.Stripe) != stripe {
		return 0, nil
	}
	p.arrived = nil
	p.result = b.head.Kind == wire.Result
	if !p.result && b.head.Kind != wire.Allowance {
		p.host.job.fail(fmt.Errorf("reduction: rank %d was sent a %v", p.host.rank, b.head.Kind))
		return 1, nil
	}
	head := b.head
	to.Slot(&head, b.payload)
	return 1, nil
}

// socket is a host's end of a stripe.
type socket struct {
	host       *Host
	lane       *lane
	leaf, tree int
	next       uint32   // the slot after the last that was sent
	wants      bool     // it had contributions when it was flushed last
	added      []Packet // to be sent by the next flush
}

// batch is how many bodies of packets are allocated at once.
const batch = 16

// add puts a datagram with those to send, as many as the NIC takes now, and one if it takes none.
func (s *socket) add(h *wire.Slot, payload []byte) bool {
	if len(s.added) > 0 && len(s.added)*len(payload) >= s.lane.room(s) {
		return false
	}
	if cap(s.added) == 0 {
		s.added = make([]Packet, 0, batch)
	}
	if h.Kind != wire.Contribution { // the memory of a contribution stays as it is
		payload = bytes.Clone(payload)
	}
	s.added = append(s.added, Packet{head: *h, payload: payload})
	return true
}

// paced reports whether a datagram waits for its turn: contributions do, the others are too small.
func paced(b *Packet) bool { return b.head.Kind == wire.Contribution }

// flush gives the NIC the added datagrams, but no more contributions than it takes: they are paced.
func (s *socket) flush() (sent int) {
	for i := range s.added {
		b := &s.added[i]
		class := uint8(network.Control)
		if paced(b) {
			if s.lane.room(s) <= 0 {
				break
			}
			s.lane.left -= len(b.payload)
			class = s.class(b.head.Slot)
		}
		s.host.job.post(s.host.rank, s.leaf, s.tree, class, b)
		sent++
	}
	if len(s.added) > 0 && paced(&s.added[0]) {
		s.lane.flushed(s, sent)
	}
	s.added = s.added[sent:sent]
	return sent
}

// class tells a first transmission from a later one.
func (s *socket) class(slot uint32) uint8 {
	if wire.Before(slot, s.next) {
		return network.Repair
	}
	s.next = slot + 1
	return network.Data
}
