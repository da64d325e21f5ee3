package simnet

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/fabric"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// pollBudget is how many datagrams a driver takes before it looks at the clock.
const pollBudget = 64

// node is one rank: its program, which posts the script's operations, and its
// driver, which does what internal/engine does.
type node struct {
	*sim
	rank  int
	comm  *core.Comm
	arena []byte
	ops   []*buffers // posted operations, by number
	open  int        // posted and not done
	due   bool       // a post is scheduled

	queue   []*packet
	held    [][]*packet // of a lossless fabric: what each root has sent and this rank not taken
	busy    bool        // a process event is scheduled
	nicFree core.Time
	nicDue  bool
	timerAt core.Time // of the earliest timer event, 0: none

	paused core.Time
	dead   bool
	gone   bool // has left after the last operation
	failed error
}

func newNode(s *sim, rank int) *node {
	cfg := s.Core
	cfg.Rank = rank
	n := &node{sim: s, rank: rank, comm: core.New(cfg), held: make([][]*packet, cfg.Size)}
	if !cfg.Lossless {
		n.arena = make([]byte, cfg.Arena)
		poison(n.arena)
	}
	n.due = true
	return n
}

// happen lets an event happen and then does what the core asks for.
func (n *node) happen(e *event) {
	switch e.kind {
	case post:
		n.due = false
		n.post()
	case arrive:
		n.arrive(e.packet)
		return
	case process:
		n.busy = false
		n.process()
	case control:
		n.control(e.packet)
	case timer:
		if n.timerAt != e.due {
			return // an earlier one has taken its place
		}
		n.timerAt = 0
		// A driver looks into its queue before it calls silence a loss.
		for range min(len(n.queue), pollBudget) {
			n.process()
		}
		if at, ok := n.comm.Deadline(); ok && at <= n.now {
			n.comm.Expire(n.now)
		}
	case room:
		n.nicDue = false
	case pause:
		n.paused = max(n.paused, n.now+e.length)
		return
	case crash:
		n.dead = true
		n.sim.dead[n.rank] = true
		return
	case detect:
		if n.failed == nil {
			n.failed = fmt.Errorf("rank %d crashed", e.packet.from)
			n.comm.Fail(n.failed)
		}
	}
	n.drive()
}

// post posts the next operation of the script.
func (n *node) post() {
	i := len(n.ops)
	if i == len(n.Ops) || n.failed != nil || n.open >= n.Depth || n.comm.Room() == 0 {
		return
	}
	o := &n.Ops[i]
	b := newBuffers(&n.Core, n.rank, i, o)
	n.ops = append(n.ops, b)
	n.open++
	n.posted[i]++
	seq, err := n.comm.Post(n.now, o.Op)
	if err != nil || seq != uint32(i) { //nolint:gosec // small
		n.fail("rank %d: post of operation %d returned %d, %v", n.rank, i, seq, err)
	}
}

// arrive puts a datagram into the receive queue, if there is room.
func (n *node) arrive(p *packet) {
	switch {
	case n.Core.Lossless:
	case n.Net.Queue > 0 && len(n.queue) >= n.Net.Queue:
		n.result.Overflow++
		return
	default:
		n.queue = append(n.queue, p)
	}
	n.wake()
}

// wake schedules the next datagram's processing.
func (n *node) wake() {
	if !n.busy && n.next() != nil {
		n.busy = true
		n.schedule(n.Net.Work, process, n, nil)
	}
}

// next returns the queue whose first datagram may be taken now, or nil.
func (n *node) next() *[]*packet {
	if !n.Core.Lossless {
		if len(n.queue) == 0 {
			return nil
		}
		return &n.queue
	}
	for r := range n.held {
		if q := &n.held[r]; len(*q) > 0 && !n.comm.Hold(&(*q)[0].data) {
			return q
		}
	}
	return nil
}

func (n *node) process() {
	q := n.next()
	if q == nil {
		return
	}
	p := (*q)[0]
	*q = (*q)[1:]
	n.receive(&p.data, p.payload)
	if n.Core.Lossless && !n.nodes[p.from].nicDue {
		n.nodes[p.from].nicDue = true
		n.schedule(0, room, n.nodes[p.from], nil)
	}
}

// receive offers a chunk to the core and puts it where it says.
func (n *node) receive(h *wire.Data, payload []byte) {
	pl, ok := n.comm.Place(n.now, h, len(payload))
	if !ok {
		return
	}
	if dst := n.place(h, pl, len(payload)); dst != nil {
		copy(dst, payload)
		n.progress = n.now
		n.comm.Received(n.now, h)
		n.finish()
	}
}

func (n *node) control(p *packet) {
	if p.message.Kind == wire.Repair {
		h := fabric.RepairHeader(&p.message)
		n.receive(&h, p.payload)
		return
	}
	n.comm.Control(n.now, p.from, &p.message)
}

// drive does all that the core asks for, as far as the fabric has room.
func (n *node) drive() {
	n.finish()
	n.send()
	n.messages()
	n.finish()
	if n.gone = n.Leave && n.open == 0 && len(n.ops) == len(n.Ops) && !n.owes(); n.gone {
		return
	}
	n.wake()
	if !n.due && len(n.ops) < len(n.Ops) && n.open < n.Depth && n.failed == nil && n.comm.Room() > 0 {
		n.due = true
		n.schedule(upTo(n.rng, n.Skew), post, n, nil)
	}
	if at, ok := n.comm.Deadline(); ok && (n.timerAt == 0 || at < n.timerAt) {
		n.timerAt = max(at, n.now)
		n.schedule(n.timerAt-n.now, timer, n, nil)
	}
}

// send multicasts what may be sent, a burst at a time.
func (n *node) send() {
	left := n.Net.Burst
	for n.now >= n.nicFree {
		run, ok := n.comm.NextRun()
		if !ok {
			return
		}
		took := min(run.Count, left, n.roomAhead())
		if took == 0 {
			break
		}
		n.transmit(&run, took)
		left -= took
		n.comm.Sent(run.Head.Seq, took)
		n.finish()
		if left == 0 {
			n.nicFree = n.now + n.Net.Wire*core.Time(n.Net.Burst)
			break
		}
	}
	if _, more := n.comm.NextRun(); more && !n.nicDue && n.roomAhead() > 0 {
		n.nicDue = true
		n.schedule(max(0, n.nicFree-n.now), room, n, nil)
	}
}

// roomAhead is how many chunks the slowest receiver of a lossless fabric has room for.
func (n *node) roomAhead() int {
	if !n.Core.Lossless {
		return n.Net.Burst
	}
	left := n.Net.Queue
	for _, m := range n.nodes {
		if m != n && !m.dead {
			left = min(left, n.Net.Queue-len(m.held[n.rank]))
		}
	}
	return max(0, left)
}

// messages sends control messages and repairs, a burst at a time.
func (n *node) messages() {
	left := n.Net.Burst
	for ; left > 0; left-- {
		m, ok := n.comm.NextControl()
		if !ok {
			break
		}
		n.sim.control(m.To, &packet{from: n.rank, message: m.Control})
		n.comm.PopControl()
	}
	for ; left > 0; left-- {
		r, ok := n.comm.NextRepair()
		if !ok {
			return
		}
		n.sim.control(r.To, &packet{from: n.rank, message: r.Message, payload: n.repair(&r)})
		n.comm.Repaired(&r)
	}
	if !n.nicDue {
		n.nicDue = true
		n.schedule(max(n.Net.Wire, 1), room, n, nil)
	}
}

// owes reports whether messages wait to be sent.
func (n *node) owes() bool {
	_, message := n.comm.NextControl()
	_, repair := n.comm.NextRepair()
	return message || repair
}

// finish takes the completions.
func (n *node) finish() {
	for {
		d, ok := n.comm.NextDone()
		if !ok {
			return
		}
		n.complete(&d)
	}
}
