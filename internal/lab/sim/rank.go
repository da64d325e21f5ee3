package sim

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Datagram is the body of a multicast packet: a chunk. Its token stands for the
// payload where a scenario has digests instead of bytes.
type Datagram struct {
	head    wire.Data
	size    int // of the payload
	payload []byte
	token   uint64
}

// Message is the body of a packet of the reliable class.
type Message struct {
	wire.Control
	life    int // of the communicator whose connection it came over
	payload []byte
	token   uint64
}

// rank is one rank: its program, which posts the script's operations, and its
// driver, which does what internal/engine does. It lives at a host.
type rank struct {
	*Job
	rank  int
	comm  *multicast.Comm
	arena []byte
	ops   []*buffers // posted operations, by number
	open  int        // posted and not done
	due   bool       // a post is scheduled

	held    [][]*Datagram  // of a lossless fabric: what each root has sent and this rank not taken
	belled  bool           // a bell is scheduled
	roomy   bool           // a look for room to send is scheduled
	queued  int            // bytes of repairs that have not reached the right neighbour
	timerAt multicast.Time // of the earliest timer, 0: none

	dead   bool
	gone   bool // has left after the last operation
	failed error
}

// A rank's wake-ups. A tag holds one in bits 1 to 7 (bit 0 is for whoever shares
// the host), the life in the next 8, and an argument.
const (
	wakePost = iota
	wakeTimer
	wakeRoom
	wakeBell
	wakeCrash
	wakeDetect
	wakeRestart
)

func (n *rank) at(at multicast.Time, wake, arg int) {
	n.net.At(at, n.rank, uint64(wake)<<1|uint64(n.life)&0xff<<8|uint64(arg)<<16) //nolint:gosec // small
}

// begin makes the rank's side of a new communicator.
func (n *rank) begin() {
	cfg := n.Core
	cfg.Rank = n.rank
	*n = rank{Job: n.Job, rank: n.rank, comm: multicast.New(cfg)}
	if cfg.Lossless {
		n.held = make([][]*Datagram, cfg.Size)
	} else {
		n.arena = make([]byte, cfg.Arena)
		poison(n.arena)
	}
}

// post schedules the next post.
func (n *rank) post(after multicast.Time) {
	n.due = true
	n.at(n.net.Now()+after, wakePost, 0)
}

// Wake does what the rank has put off, and what the scenario does to it.
func (n *rank) Wake(tag uint64) {
	wake, life, arg := tag>>1&0x7f, tag>>8&0xff, int(tag>>16) //nolint:gosec // as made by at
	if wake == wakeRestart {
		n.restart(arg)
		return
	}
	if life != uint64(n.life)&0xff { //nolint:gosec // small
		return // so does a crash that a pause has put off until after the restart
	}
	if wake == wakeCrash {
		n.dead = true
		n.net.Crash(n.rank)
	}
	if n.dead || n.gone {
		return
	}
	switch wake {
	case wakePost:
		n.due = false
		n.postNext()
	case wakeTimer:
		if n.timerAt != multicast.Time(arg) {
			return // an earlier one has taken its place
		}
		n.timerAt = 0
		// A driver looks into its queue before it calls silence a loss.
		if until := n.net.Busy(n.rank); until > n.net.Now() {
			n.setTimer(until)
			return
		}
		if at, ok := n.comm.Deadline(); ok && at <= n.net.Now() {
			n.comm.Expire(n.net.Now())
		}
	case wakeRoom:
		n.roomy = false
	case wakeBell:
		n.belled = false
		n.takeHeld()
	case wakeDetect:
		n.hear(arg)
	}
	n.drive()
	n.check()
}

// Receive takes a packet off the rank's queue.
func (n *rank) Receive(p *network.Packet) {
	if n.dead || n.gone {
		return
	}
	if n.Forged > 0 && n.forger.Float64() < n.Forged {
		n.forge()
	}
	switch b := p.Body.(type) {
	case *Datagram:
		if b.head.Job != n.number() {
			return // a socket filter drops what another job sends
		}
		n.receive(&b.head, b.size, b.payload, b.token)
	case *Message:
		if b.life != n.life {
			return // its connection is closed
		}
		n.control(int(p.From), b)
	default:
		n.fail("rank %d: a packet with %T", n.rank, p.Body)
	}
	n.drive()
	n.check()
}

// hear lets the rank's operations end: another rank is lost.
func (n *rank) hear(lost int) {
	if n.failed == nil {
		n.failed = fmt.Errorf("rank %d is lost", lost)
		n.comm.Fail(n.failed)
	}
}

// postNext posts the next operation of the script.
func (n *rank) postNext() {
	i := len(n.ops)
	if i == len(n.Ops) || n.failed != nil || n.open >= n.Depth || n.comm.Room() == 0 {
		return
	}
	o := &n.Ops[i]
	b := n.newBuffers(i, o)
	n.ops = append(n.ops, b)
	n.open++
	if n.posted[i] == 0 {
		n.result.Spans[i].From = n.net.Now()
	}
	n.posted[i]++
	n.note(b, Barrier)
	seq, err := n.comm.Post(n.net.Now(), o.Op)
	if err != nil || seq != n.Core.First+uint32(i) { //nolint:gosec // small
		n.fail("rank %d: post of operation %d returned %d, %v", n.rank, i, seq, err)
	}
}

// takeHeld takes what a lossless fabric has for this rank, as far as it may.
func (n *rank) takeHeld() {
	for r := range n.held {
		q := &n.held[r]
		for len(*q) > 0 && !n.comm.Hold(&(*q)[0].head) {
			d := (*q)[0]
			*q = (*q)[1:]
			n.receive(&d.head, d.size, d.payload, d.token)
			n.ranks[r].look(0)
		}
	}
}

// look schedules a look for room to send. Where a port waits for credit, its
// backlog does not tell for how long.
func (n *rank) look(after multicast.Time) {
	if !n.roomy {
		n.roomy = true
		if n.Net.Lossless {
			after = max(after, n.Net.Latency/2)
		}
		n.at(n.net.Now()+after, wakeRoom, 0)
	}
}

// bell schedules a look at what is held.
func (n *rank) bell(after multicast.Time) {
	if !n.belled {
		n.belled = true
		n.at(n.net.Now()+after, wakeBell, 0)
	}
}

// receive offers a chunk to the core and puts it where it says.
func (n *rank) receive(h *wire.Data, size int, payload []byte, token uint64) {
	pl, ok := n.comm.Place(n.net.Now(), h, size)
	if ok && n.put(h, pl, size, payload, token) {
		n.moved()
		n.comm.Received(n.net.Now(), h)
		n.finish()
	}
}

func (n *rank) control(from int, m *Message) {
	n.markReceived(&m.Control)
	if m.Kind == wire.Repair {
		n.ranks[from].arrived(m)
		h := fabric.RepairHeader(&m.Control)
		n.receive(&h, m.Payload(), m.payload, m.token)
		return
	}
	n.comm.Control(n.net.Now(), from, &m.Control)
}

// drive does all that the core asks for, as far as the fabric has room.
func (n *rank) drive() {
	n.finish()
	n.send()
	n.messages()
	n.finish()
	if n.Leave && n.open == 0 && len(n.ops) == len(n.Ops) && !n.owes() {
		n.gone = true
		return
	}
	if n.held != nil && n.anyHeld() {
		n.bell(0)
	}
	if !n.due && len(n.ops) < len(n.Ops) && n.open < n.Depth && n.failed == nil && n.comm.Room() > 0 {
		n.post(upTo(n.rng, n.Skew))
	}
	if at, ok := n.comm.Deadline(); ok && (n.timerAt == 0 || at < n.timerAt) {
		n.setTimer(at)
	}
}

// anyHeld reports whether a chunk that is held may be taken.
func (n *rank) anyHeld() bool {
	for _, q := range n.held {
		if len(q) > 0 && !n.comm.Hold(&q[0].head) {
			return true
		}
	}
	return false
}

func (n *rank) setTimer(at multicast.Time) {
	n.timerAt = max(at, n.net.Now())
	n.at(n.timerAt, wakeTimer, int(n.timerAt))
}

// send multicasts what may be sent, a burst at a time, once the NIC has sent
// what it was given.
func (n *rank) send() {
	left := n.Burst
	for left > 0 {
		run, ok := n.comm.NextRun()
		if !ok {
			return
		}
		if wait := n.backlog(int(run.Head.Subgroup)); wait > 0 {
			n.look(wait)
			return
		}
		took := min(run.Count, left, n.roomAhead())
		if took == 0 {
			return // a reader of the lossless fabric looks again for us
		}
		n.note(n.operation(run.Head.Seq), Multicast)
		n.transmit(&run, took)
		left -= took
		n.comm.Sent(run.Head.Seq, took)
		n.finish()
	}
	if _, more := n.comm.NextRun(); more {
		n.look(n.backlog(0))
	}
}

// backlog is how long the NIC that a subgroup leaves by is busy.
func (n *rank) backlog(subgroup int) multicast.Time {
	return n.net.Backlog(n.rank, subgroup%n.net.Tree().Planes())
}

// roomAhead is how many chunks the slowest receiver of a lossless fabric has room for.
func (n *rank) roomAhead() int {
	if n.held == nil {
		return n.Burst
	}
	left := n.Slots
	for _, m := range n.ranks {
		if m != n && !m.dead {
			left = min(left, n.Slots-len(m.held[n.rank]))
		}
	}
	return max(0, left)
}

// messages sends control messages, and repairs, a burst at a time.
func (n *rank) messages() {
	for {
		m, ok := n.comm.NextControl()
		if !ok {
			break
		}
		n.markMessage(&m.Control)
		n.reply(m.To, network.Control, &Message{Control: m.Control})
		n.comm.PopControl()
	}
	for range n.Burst {
		if n.full() {
			return // a repair that arrives looks again for us
		}
		r, ok := n.comm.NextRepair()
		if !ok {
			return
		}
		m := &Message{Control: r.Message}
		m.payload, m.token = n.repair(&r)
		n.queued += m.size()
		n.reply(r.To, network.Repair, m)
		n.comm.Repaired(&r)
	}
	if n.owes() {
		n.look(max(n.backlog(0), 1))
	}
}

// reply sends a message on the reliable path.
func (n *rank) reply(to int, class uint8, m *Message) {
	n.result.Control[m.Kind]++
	m.life = n.life
	p := n.net.Packet()
	p.From, p.To, p.Reliable, p.Class, p.Body = int32(n.rank), int32(to), true, class, m //nolint:gosec // ranks
	p.Bytes = int32(m.size())                                                            //nolint:gosec // a chunk
	p.Count = n.packets(m.Payload())
	n.net.Send(p)
}

// packets is how many packets of the network's MTU carry so much payload.
func (n *rank) packets(bytes int) int32 {
	if n.PacketBytes == 0 {
		return 1
	}
	return int32(max(1, (bytes+n.PacketBytes-1)/n.PacketBytes)) //nolint:gosec // a chunk
}

// owes reports whether messages wait to be sent.
func (n *rank) owes() bool {
	_, message := n.comm.NextControl()
	_, repair := n.comm.NextRepair()
	return message || repair && !n.full()
}

// finish takes the completions.
func (n *rank) finish() {
	for {
		d, ok := n.comm.NextDone()
		if !ok {
			return
		}
		n.complete(&d)
	}
}
