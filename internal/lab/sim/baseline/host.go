package baseline

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// A host's wake tags are a rail, when its NIC has room again, and tagTimer plus a connection's
// number, for its timer.
const tagTimer = 1 << 32

// host is a rank with its NIC.
type host struct {
	run         *run
	rank        int32
	connections []*connection
	to          map[int64]*connection // by destination and rail
	rails       []rail
	holdings    []holding // by stream
	missing     int       // streams that are not yet complete
}

// rail is a NIC: the connections that may have something to send take turns, a message each.
type rail struct {
	turns   []*connection
	head    int
	waiting bool // for room
}

// send sends pieces of a stream to another host, or to all of them.
func (h *host) send(stream int, to, first, count int) {
	r := h.run
	s := &r.streams[stream]
	m := message{
		stream: int32(stream), first: int32(first), count: int32(count), // checked by Config
		bytes: s.size(first, count),
	}
	if err := h.holdings[stream].lend(s, &m); err != nil {
		r.fail(fmt.Errorf("baseline: rank %d, to %d: %w", h.rank, to, err))
		return
	}
	c := h.connection(to, first%len(h.rails))
	c.add(m)
	h.list(c)
}

// connection returns the connection to a host, a new one if there is none yet.
func (h *host) connection(to, rail int) *connection {
	if to == network.Multicast {
		rail = h.run.tree % len(h.rails) // one sender for all segments
	}
	key := int64(to)*int64(len(h.rails)) + int64(rail)
	if c := h.to[key]; c != nil {
		return c
	}
	group := int(h.rank)*len(h.rails) + rail
	if to == network.Multicast {
		group = h.run.tree
	}
	c := newConnection(h, int32(to), int32(group), rail)
	h.connections = append(h.connections, c)
	h.to[key] = c
	return c
}

// list gives a connection its turn, if there is anything that it may send.
func (h *host) list(c *connection) {
	if c.listed || !c.sendable() {
		return
	}
	c.listed = true
	r := &h.rails[c.rail]
	r.turns = append(r.turns, c)
	h.pump(c.rail)
}

// pump feeds a NIC, which queues no more than is good: what has been handed
// over cannot be taken back, and memory is bounded.
func (h *host) pump(n int) {
	r, net := &h.rails[n], h.run.net
	if r.waiting {
		return
	}
	for r.head < len(r.turns) {
		if busy := net.Backlog(int(h.rank), n); busy > h.run.ahead {
			r.waiting = true
			net.At(net.Now()+busy-h.run.ahead/2, int(h.rank), uint64(n))
			return
		}
		c := r.turns[r.head]
		switch {
		case !c.sendable():
			c.listed = false
			r.head++
		case c.send():
			r.head++
			r.turns = append(r.turns, c)
		}
		if r.head > 64 && r.head*2 > len(r.turns) {
			r.turns = r.turns[:copy(r.turns, r.turns[r.head:])]
			r.head = 0
		}
	}
	r.turns, r.head = r.turns[:0], 0
}

// Receive takes in a packet.
func (h *host) Receive(p *network.Packet) {
	c := p.Body.(*connection)
	if p.Class == network.Control {
		c.feedback(feedbackOf(p.Tag))
		return
	}
	c.receive(h, p)
}

// reply sends feedback, for Gleam to the leaf.
func (h *host) reply(c *connection, f feedback) {
	r := h.run
	p := r.net.Packet()
	p.From, p.To, p.Group = h.rank, c.from.rank, c.group
	if c.to == network.Multicast {
		p.To = int32(r.net.Tree().Leaf(int(h.rank), c.rail))
	}
	p.Class, p.Body, p.Tag = network.Control, c, f.tag()
	r.result.Feedback++
	r.net.Send(p)
}

// Wake goes on after a wait.
func (h *host) Wake(tag uint64) {
	if tag < tagTimer {
		h.rails[tag].waiting = false
		h.pump(int(tag))
		return
	}
	h.connections[tag-tagTimer].timer()
}

// arrived takes in a message.
func (h *host) arrived(m message) {
	r := h.run
	s := &r.streams[m.stream]
	hold := &h.holdings[m.stream]
	if err := hold.take(s, &m); err != nil {
		r.fail(fmt.Errorf("baseline: rank %d: %w", h.rank, err))
		return
	}
	if hold.missing == 0 && !hold.done {
		hold.done = true
		h.finish(int(m.stream))
	}
	s.schedule.arrived(h, m)
}

// finish notes that a stream is complete here.
func (h *host) finish(stream int) {
	r := h.run
	r.result.Streams[stream] = r.net.Now()
	if h.missing--; h.missing == 0 {
		r.result.Finish[h.rank] = r.net.Now()
		r.result.Time = r.net.Now()
		r.unfinished--
	}
}
