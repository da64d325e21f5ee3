package baseline

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// gleam is a Broadcast by one sender over multicast, as Gleam does it.
type gleam struct{ tree }

func (g gleam) begin(h *host) {
	if int(h.rank) == g.root {
		for i := range g.segments {
			h.send(0, network.Multicast, i, 1)
		}
	}
}

func (gleam) arrived(*host, message) {}

// feedbackTable is a group's part of a Gleam switch's forwarding table (3.4):
// what each port towards receivers has acknowledged. A PSN here is the next
// one expected, so that an ACK and a NACK of one PSN acknowledge the same.
type feedbackTable struct {
	ports []int64
	low   int   // the port that has acknowledged least (MinPort)
	sent  int64 // of the last feedback passed on
	nack  int64 // the smallest NACK that waits, -1: none
}

func newFeedbackTable(ports int) *feedbackTable {
	return &feedbackTable{ports: make([]int64, ports), nack: -1}
}

// receive takes in a port's feedback and returns the feedback to pass on, if
// there is any. It passes feedback on for two reasons alone: the slowest port
// has made progress, or a NACK came that is no larger than the one that waits
// (algorithm 2). A NACK says that everything before it has arrived, so it waits
// until this holds for every port (algorithm 3): passed on earlier it would
// make the sender forget a smaller loss (fig. 7).
//
// The paper leaves one thing open. Here feedback of the slowest port is passed
// on even if it says nothing new: otherwise a lost ACK at the end of the data
// would never be made good.
func (t *feedbackTable) receive(port int, f feedback) (out feedback, ok bool) {
	before := t.ports[port]
	if f.expected < before {
		return out, false // overtaken
	}
	t.ports[port] = f.expected
	again := port == t.low && f.expected == before && !f.nack
	if smallest := f.nack && (t.nack < 0 || f.expected <= t.nack); smallest {
		t.nack = f.expected
	} else if port != t.low {
		return out, false
	}
	for i, psn := range t.ports {
		if psn < t.ports[t.low] {
			t.low = i
		}
	}
	least := t.ports[t.low]
	switch {
	case t.nack == least:
		out = feedback{nack: true, expected: least}
		t.nack = -1
	case least > t.sent || again:
		out = feedback{expected: least}
	default:
		return out, false
	}
	if t.nack >= 0 && t.nack < least {
		t.nack = -1 // of a round that is over
	}
	t.sent = least
	return out, true
}

// aggregator is a switch of the tree: it passes the least feedback of its
// ports on towards the sender.
type aggregator struct {
	run   *run
	node  int32
	up    int32         // the next node towards the sender
	ports map[int32]int // by neighbour
	table *feedbackTable
}

// Receive takes in feedback.
func (a *aggregator) Receive(p *network.Packet) {
	port, ok := a.ports[p.From]
	if !ok {
		a.run.fail(fmt.Errorf("baseline: switch %d has feedback from %d, which is no receiver's side", a.node, p.From))
		return
	}
	f, ok := a.table.receive(port, feedbackOf(p.Tag))
	if !ok {
		return
	}
	q := a.run.net.Packet()
	q.From, q.To, q.Group, q.Class = a.node, a.up, p.Group, network.Control
	q.Body, q.Tag = p.Body, f.tag()
	a.run.result.Feedback++
	a.run.net.Send(q)
}

// Wake is never asked for.
func (*aggregator) Wake(uint64) {}

// attachAggregators walks the multicast tree from the sender and puts an
// aggregator into each switch.
func (r *run) attachAggregators() {
	t := r.net.Tree()
	type visit struct{ node, from int }
	for todo := []visit{{t.Leaf(r.Root, r.tree%t.Planes()), r.Root}}; len(todo) > 0; {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		a := &aggregator{run: r, node: int32(v.node), up: int32(v.from), ports: map[int32]int{}}
		for _, port := range t.Group(r.tree, v.node) {
			to := t.Ports[port].To
			if to == v.from {
				continue
			}
			a.ports[int32(to)] = len(a.ports)
			if t.Switch(to) {
				todo = append(todo, visit{to, v.node})
			}
		}
		a.table = newFeedbackTable(len(a.ports))
		r.net.Attach(v.node, a)
	}
}
