package switchd

import (
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

const (
	// messages is how many a link receives before the next one's turn: a
	// member that is ahead must wait for the others anyway.
	messages = 4
	// leastCharge is the least that a datagram, and a call to receive some, takes of the
	// credit, in bytes: short ones cost the worker about as much as those of 1.5 KiB.
	leastCharge = 2 << 10
	// maxFailures is after how many in a row a link waits for the kernel to call again.
	maxFailures = 16
)

// stripe is a worker's share of a job.
type stripe struct {
	job    *job
	worker *worker
	stage  *innetwork.Stage
	links  []*link // by member
	up     *link   // to the parent, or nil
	large  bool    // chunks are

	timeout innetwork.Time // the parent counts as lost after such a silence

	credit int  // bytes that it may still move in this round
	first  int  // the link whose turn it is
	failed bool // the job was told why it ends
	unsent []innetwork.Out
	adding []innetwork.Out // in the batch of the link that is sent to
	to     *link
}

// link is one end of a connection with a member, or with the parent. It is the
// sink of what it receives.
type link struct {
	stripe   *stripe
	member   int // or innetwork.Up
	socket   *datagram.Socket
	batch    *datagram.Batch // of the worker
	out, in  *session.Sealer // nil: without tags
	tag      int             // of the poller
	readable bool
	writable bool
	failures int // of calls to receive, in a row
}

func newStripe(j *job, c innetwork.StageConfig) (*stripe, error) {
	stage, err := innetwork.NewStage(c)
	if err != nil {
		return nil, err
	}
	s := &stripe{job: j, stage: stage, large: c.Chunk >= datagram.Straight, timeout: c.Timeout}
	for i, m := range j.members {
		l := &link{stripe: s, member: i, socket: m.sockets[c.Stripe]}
		seals := m.peer.Seals()
		l.out, l.in = seals.Out, seals.In
		s.links = append(s.links, l)
	}
	if j.parent != nil {
		s.up = &link{stripe: s, member: innetwork.Up, socket: j.parent.Sockets()[c.Stripe]}
		seals := j.parent.Seals()
		s.up.out, s.up.in = seals.Out, seals.In
	}
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
	s.credit = min(s.credit+quantum, quantum)
	busy = s.credit <= 0 // in debt for an earlier round, and the links may have more
	busy = s.receive() || busy
	s.stage.Expire(w.now)
	s.allow()
	s.acknowledge()
	busy = s.send() || busy
	if err := s.stage.Err(); err != nil {
		s.fail(err)
	} else if silence := s.stage.Silence(w.now); silence > s.timeout {
		s.fail(fmt.Errorf("parent switch at %v: its data path has not answered for %v", s.up.socket.Peer().Addr(), silence.Round(time.Millisecond)))
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

// receive takes what the links have, in turns, as far as credit goes.
func (s *stripe) receive() (busy bool) {
	for again := true; again && s.credit > 0; {
		again = false
		for range s.links {
			again = s.links[s.first].receive() || again
			s.first = (s.first + 1) % len(s.links)
		}
		if s.up != nil {
			again = s.up.receive() || again
		}
		busy = busy || again
	}
	return busy
}

// receive makes a call to the kernel, and reports whether the next may bring something.
func (l *link) receive() bool {
	if !l.readable || l.stripe.credit <= 0 {
		return false
	}
	var hint []byte
	if l.stripe.large && l.member != innetwork.Up {
		hint = l.stripe.stage.Expect(l.member)
	}
	l.stripe.credit -= leastCharge
	n, err := l.batch.Receive(l.socket, hint, messages, l)
	if err != nil {
		l.stripe.worker.moved.Errors++ // nobody listens there any more; the session says what it means
		l.failures++
		l.readable = l.failures < maxFailures // the error came in place of what is queued
		return l.readable
	}
	l.failures, l.readable = 0, n > 0
	return l.readable
}

// Datagram takes a datagram: see datagram.Sink.
func (l *link) Datagram(head, payload []byte) {
	s := l.stripe
	w := s.worker
	s.credit -= max(leastCharge, len(head)+len(payload))
	w.moved.BytesIn += uint64(len(head) + len(payload))
	var h wire.Slot
	if err := h.Get(head); err != nil {
		w.moved.Garbage++
		return
	}
	if l.in != nil && !l.in.Open(head, payload) {
		w.moved.BadTags++
		return
	}
	switch {
	case l.member == innetwork.Up:
		l.fromParent(&h, payload)
	case h.Kind == wire.Contribution:
		s.stage.Contribute(l.member, &h, payload)
	case h.Kind == wire.Status:
		var st wire.SlotStatus
		if st.Get(payload) != nil {
			w.moved.Garbage++
			return
		}
		s.stage.Status(s.worker.now, l.member, &h, &st)
	case h.Kind == wire.Echo:
		if s.stage.Echo(l.member, &h, len(payload)) {
			l.message(&h, nil)
			l.message(&h, payload)
		}
	case h.Kind == wire.Kept:
		var k wire.SlotKept
		if k.Get(payload) != nil {
			w.moved.Garbage++
			return
		}
		s.stage.Kept(l.member, &h, &k)
	default:
		w.moved.Garbage++
	}
}

func (l *link) fromParent(h *wire.Slot, payload []byte) {
	s := l.stripe
	switch h.Kind {
	case wire.Result:
		s.stage.Result(s.worker.now, h, payload)
		return
	case wire.Allowance:
		var c wire.SlotCredit
		if c.Get(payload) == nil {
			s.stage.Credit(s.worker.now, h, &c)
			return
		}
	}
	s.worker.moved.Garbage++
}

// allow sends the allowances that are due.
func (s *stripe) allow() {
	for {
		member, h, c, ok := s.stage.NextCredit()
		if !ok {
			return
		}
		s.links[member].message(&h, s.worker.body[:c.Put(s.worker.body[:])])
	}
}

// acknowledge tells the parent what is held here.
func (s *stripe) acknowledge() {
	if s.up == nil {
		return
	}
	if h, st, ok := s.stage.NextStatus(s.worker.now); ok {
		s.up.message(&h, s.worker.body[:st.Put(s.worker.body[:])])
	}
}

// message sends one datagram. If there is no room for it, it is lost: who waits for it asks again.
func (l *link) message(h *wire.Slot, body []byte) {
	l.put(h, body)
	_ = l.flush()
}

// put adds a datagram to the batch; it reports whether there was room.
func (l *link) put(h *wire.Slot, payload []byte) bool {
	head := l.batch.Add(payload)
	if head == nil {
		return false
	}
	h.Put(head)
	if l.out != nil {
		l.out.Seal(head, payload)
	}
	l.stripe.credit -= max(leastCharge, len(head)+len(payload))
	l.stripe.worker.moved.BytesOut += uint64(len(head) + len(payload))
	return true
}

// flush sends the batch and returns how many datagrams went.
func (l *link) flush() int {
	added := l.batch.Added()
	sent, err := l.batch.Flush(l.socket)
	if err != nil {
		l.stripe.worker.moved.Errors++
		if errors.Is(err, unix.EMSGSIZE) {
			l.stripe.fail(fmt.Errorf("the path takes less than when the job began: %w", err))
		} // else nobody listens there any more; the session says what it means
		return added
	}
	l.writable = sent == added
	return sent
}

// send sends results and partial results, as far as credit goes: for each link in
// batches. While a socket is full, the rest of the stripe waits.
func (s *stripe) send() (busy bool) {
	for s.credit > -quantum {
		out, ok := s.next()
		if !ok {
			break
		}
		l := s.up
		if out.Member != innetwork.Up {
			l = s.links[out.Member]
		}
		if l != s.to && !s.flush() || !l.writable {
			break
		}
		s.to = l
		if !l.put(&out.Head, out.Payload) {
			if !s.flush() {
				break
			}
			continue
		}
		s.adding = append(s.adding, out)
		s.pop(&out)
		busy = true
	}
	s.flush()
	return busy
}

// next returns what to send: what the kernel did not take first.
func (s *stripe) next() (innetwork.Out, bool) {
	if len(s.unsent) > 0 {
		return s.unsent[0], true
	}
	return s.stage.Next()
}

func (s *stripe) pop(o *innetwork.Out) {
	if len(s.unsent) > 0 {
		s.unsent = s.unsent[:copy(s.unsent, s.unsent[1:])]
		return
	}
	s.stage.Pop(s.worker.now, o)
}

// flush sends what was added and keeps what the kernel did not take. It
// reports whether it took all. A slot that is free by the time that the rest
// goes is stale for whoever gets it.
func (s *stripe) flush() bool {
	if s.to == nil {
		return true
	}
	sent := s.to.flush()
	all := sent == len(s.adding)
	if !all {
		s.unsent = append(s.unsent, s.adding[sent:]...)
	}
	s.adding, s.to = s.adding[:0], nil
	return all
}
