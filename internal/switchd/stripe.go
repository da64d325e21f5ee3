package switchd

import (
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

const (
	// messages is how many a link receives before the next one's turn: a
	// member that is ahead must wait for the others anyway.
	messages = 4
	// maxFailures is after how many in a row a link waits for the kernel to call again.
	maxFailures = 16
)

// stripe is a worker's share of a job.
type stripe struct {
	job    *job
	worker *worker
	node   *node.Node
	links  []*link // by member
	up     *link   // to the parent, or nil
	failed bool    // the job was notified why it ends
}

// link is one end of a connection with a member, or with the parent. It implements node.Link and is
// the sink of the received datagrams.
type link struct {
	stripe   *stripe
	member   int // or innetwork.Up
	socket   *datagram.Socket
	batch    *datagram.Batch // of the worker
	seals    session.Seals
	tag      int // of the poller
	readable bool
	room     datagram.Room // Full at first: the poller tells of a new socket as well
	failures int           // of calls to receive, in a row
}

func newStripe(j *job, c innetwork.StageConfig) (*stripe, error) {
	n, err := node.New(c)
	if err != nil {
		return nil, err
	}
	s := &stripe{job: j, node: n}
	links := make([]node.Link, len(j.members))
	for i, m := range j.members {
		l := &link{stripe: s, member: i, socket: m.sockets[c.Stripe], seals: m.peer.Seals(c.Stripe), room: datagram.Full}
		l.seals.Begin(c.First)
		s.links = append(s.links, l)
		links[i] = l
	}
	var up node.Link
	if j.parent != nil {
		s.up = &link{
			stripe: s, member: innetwork.Up, socket: j.parent.Sockets()[c.Stripe], seals: j.parent.Seals(c.Stripe),
			room: datagram.Full,
		}
		up = s.up
	}
	n.Connect(links, up, c.Chunk >= datagram.Straight)
	return s, nil
}

// all are the links to members and parent.
func (s *stripe) all() iter.Seq[*link] {
	return func(yield func(*link) bool) {
		for _, l := range s.links {
			if !yield(l) {
				return
			}
		}
		if s.up != nil {
			yield(s.up)
		}
	}
}

// serve gives a stripe its share of a round and reports whether there was something to do. A defect
// that shows there ends the job and leaves the others alone.
func (w *worker) serve(s *stripe) (busy bool) {
	if s.failed {
		return false
	}
	defer func() {
		if defect := recover(); defect != nil {
			w.forget()
			s.job.server.cfg.Log.Error("defect", "job", s.job.name, "panic", defect, "stack", string(debug.Stack()))
			s.fail(fmt.Errorf("a defect of the switch: %v", defect))
			busy = false
		}
	}()
	busy = s.node.Work(w.now)
	if err := s.node.Err(); err != nil {
		var silence *node.SilenceError
		if errors.As(err, &silence) {
			err = fmt.Errorf("parent switch at %v: %w", s.up.socket.Peer().Addr(), err)
		}
		s.fail(err)
	}
	return busy
}

// fail ends the job, which does not wait for it.
func (s *stripe) fail(err error) {
	if !s.failed {
		s.failed = true
		go s.job.fail(err)
	}
}

// Receive implements node.Link by one call to the kernel.
func (l *link) Receive(hint []byte) bool {
	if !l.readable {
		return false
	}
	l.stripe.node.Charge(0)
	if l.seals.Encrypt() {
		hint = nil
	}
	n, err := l.batch.Receive(l.socket, hint, messages, l)
	if err != nil {
		l.stripe.worker.moved.Errors++ // nobody listens there any more; the session tells why
		l.failures++
		l.readable = l.failures < maxFailures // the error came in place of the queued datagrams
		return l.readable
	}
	l.failures, l.readable = 0, n > 0
	return l.readable
}

// Datagram takes a datagram: see datagram.Sink.
func (l *link) Datagram(head, payload []byte) {
	s := l.stripe
	moved := &s.worker.moved
	s.node.Charge(len(head) + len(payload))
	moved.BytesIn += uint64(len(head) + len(payload))
	var h wire.Slot
	if err := h.Get(head); err != nil {
		moved.Garbage++
		return
	}
	if !l.seals.Holds(&h, head, payload) {
		moved.BadTags++
		return
	}
	if !s.node.Take(l.member, &h, payload) {
		moved.Garbage++
	}
}

// Writable implements node.Link.
func (l *link) Writable() bool { return l.room == datagram.Free }

// Add implements node.Link.
func (l *link) Add(h *wire.Slot, payload []byte) bool {
	bytes, ok := l.seals.Add(l.batch, h, payload)
	l.stripe.worker.moved.BytesOut += uint64(bytes)
	return ok
}

// Flush implements node.Link.
func (l *link) Flush() int {
	added := l.batch.Added()
	sent, err := l.batch.Flush(l.socket)
	if err != nil {
		l.stripe.worker.moved.Errors++
		if errors.Is(err, unix.EMSGSIZE) {
			l.stripe.fail(fmt.Errorf("the path takes less than when the job began: %w", err))
		} // else nobody listens there any more; the session tells why
		return added
	}
	if l.room = l.batch.Room(); l.room == datagram.Congested {
		l.stripe.worker.congest()
	}
	return sent
}
