package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Message is a control message for another rank.
type Message struct {
	To int
	wire.Control
}

// outbox holds the control messages that are to be sent, oldest first. Every part of an operation
// puts its own there.
type outbox struct {
	queue[Message]
	closed bool // the communicator has failed: nothing is sent any more
}

func (o *outbox) send(to int, m wire.Control) {
	if !o.closed {
		o.push(Message{to, m})
	}
}

func (o *outbox) close() {
	o.closed = true
	o.clear()
}
