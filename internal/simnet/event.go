package simnet

import (
	"container/heap"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// kind says what happens at an event.
type kind uint8

const (
	post    kind = iota // a rank posts its next operation
	arrive              // a datagram reaches a rank's receive queue
	process             // a rank takes a datagram off its queue
	control             // a control message reaches a rank
	timer               // a rank's deadline
	room                // a rank's fabric has room again
	crash               // a rank stops for good
	detect              // a rank learns that another has crashed
	pause               // a rank stops for a while
)

// packet is what travels: a datagram, or a control message with its payload.
type packet struct {
	from    int
	data    wire.Data
	message wire.Control
	payload []byte
}

// event is something that happens at a node at a moment. Events of one moment
// happen in the order in which they were scheduled.
type event struct {
	at     core.Time
	due    core.Time // at, before it was postponed
	order  uint64
	kind   kind
	node   *node
	packet *packet
	length core.Time // of a pause
}

// agenda is the heap of events to come.
type agenda []*event

// Len is for container/heap.
func (a agenda) Len() int { return len(a) }

// Less is for container/heap.
func (a agenda) Less(i, j int) bool {
	if a[i].at != a[j].at {
		return a[i].at < a[j].at
	}
	return a[i].order < a[j].order
}

// Swap is for container/heap.
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push is for container/heap.
func (a *agenda) Push(e any) { *a = append(*a, e.(*event)) }

// Pop is for container/heap.
func (a *agenda) Pop() any {
	old := *a
	n := len(old) - 1
	e := old[n]
	old[n] = nil
	*a = old[:n]
	return e
}

// schedule adds an event after d.
func (s *sim) schedule(d core.Time, k kind, n *node, p *packet) {
	s.order++
	heap.Push(&s.agenda, &event{at: s.now + d, due: s.now + d, order: s.order, kind: k, node: n, packet: p})
}

// postpone puts an event off; it keeps its place among the others of its node.
func (s *sim) postpone(e *event, to core.Time) {
	e.at = to
	heap.Push(&s.agenda, e)
}
