package sim

import (
	"bytes"
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
	life    int // number of the communicator that the connection belongs to
	payload []byte
	token   uint64
}

// size is what a message takes on the wire.
func (m *Message) size() int { return wire.ControlSize + m.Payload() }

// rankFabric is the fabric.Gather of a rank: multicast and reliable packets of the simulated network or, lossless, the
// chunks that each root has published for the others to read. It never sleeps: the rank is driven when a packet comes,
// or when the fabric has asked for a look.
type rankFabric struct {
	network.Idle
	fabric.Copies
	n       *rank
	inbox   []received     // packets that have come and the engine has not polled
	broken  int            // rank to which nothing could be delivered and nobody was told, -1: none
	chunks  int            // that this round may still send
	repairs int            // likewise
	refused bool           // something, in this round
	queued  map[int]int    // bytes that have not arrived, by rank, where connections have a limit
	held    [][]*Datagram  // of a lossless fabric: what each root has sent and this rank not taken
	lookAt  multicast.Time // when the rank is driven for a look that the fabric has asked for; 0: for none
}

var _ fabric.Gather = (*rankFabric)(nil)

// received is a packet that has come.
type received struct {
	from int
	body any
}

// round begins a round of the engine: a burst may be sent.
func (f *rankFabric) round() { f.chunks, f.repairs, f.refused = f.n.Burst, f.n.Burst, false }

// Traits implements fabric.Gather.
func (f *rankFabric) Traits() fabric.Traits {
	c := &f.n.Core
	return fabric.Traits{Name: "simulated", Chunk: c.Chunk, Window: c.Window, Lossless: c.Lossless}
}

// Unsent implements fabric.Gather.
func (f *rankFabric) Unsent() (chunks int) {
	each := multicast.Time(float64(8*f.n.Core.Chunk) / f.n.Net.Gbps) // ns, without headers
	for subgroup := range max(1, f.n.Core.Subgroups) {
		chunks += int(f.backlog(subgroup) / max(1, each))
	}
	return chunks
}

// Multicast implements fabric.Gather: a burst at a time, once the NIC has sent all that it was given.
func (f *rankFabric) Multicast(r *fabric.Run) int {
	n := f.n
	probe := r.Count == 1 && n.result.Control[wire.Relay] > 0 // relayed chunks keep the NIC busy
	if wait := f.backlog(int(r.Head.Subgroup)); wait > 0 && !probe || f.chunks == 0 {
		f.refused = true
		f.look(wait)
		return 0
	}
	count := min(r.Count, f.chunks, f.room())
	if count == 0 {
		f.refused = true
		return 0 // a reader of the lossless fabric looks again for us
	}
	b := n.operation(r.Head.Seq)
	if b == nil || b.done || b.own < 0 || !n.follows(b, int(r.Head.PSN)) || b.sent+r.Count > b.chunks ||
		int(r.Head.Root) != n.rank {
		n.fail("rank %d: is told to send %d chunks as %+v", n.rank, r.Count, r.Head)
		return r.Count
	}
	if at, in := b.offset(r.Shard); n.Digest && (!in || at != b.start(b.own)) {
		n.fail("rank %d: sends %+v from %d", n.rank, r.Head, at)
	}
	n.note(b, Multicast)
	f.chunks -= count
	for range count {
		from := b.sent * n.Core.Chunk
		to := min(from+n.Core.Chunk, b.Bytes)
		d := &Datagram{head: r.Head, size: to - from}
		d.head.PSN = uint32(b.sent)
		if n.Digest {
			d.token = n.token(n.rank, b.index, b.sent)
		} else {
			d.payload = bytes.Clone(r.Shard[from:to])
		}
		f.publish(d)
		b.sent++
	}
	return count
}

// follows reports whether a chunk of the own shard comes next, or those between were relayed.
func (n *rank) follows(b *buffers, psn int) bool {
	skipped := psn > b.sent && n.relays()
	if skipped {
		b.sent = psn
	}
	return psn == b.sent
}

// relays reports whether ranks relay, have done so, or may do so at any time.
func (n *rank) relays() bool {
	now, _ := n.engine.Stats()
	return n.Relay || n.Core.Deaf || len(n.Relays) > 0 || n.result.Control[wire.Relay] > 0 || now.Relaying > 0
}

// publish sends a chunk to all other ranks.
func (f *rankFabric) publish(d *Datagram) {
	n := f.n
	n.result.Chunks++
	if f.held != nil {
		for _, m := range n.ranks {
			if m != n {
				m.fabric.held[n.rank] = append(m.fabric.held[n.rank], d) // it is published at once
				m.fabric.look(n.Net.Latency)
			}
		}
		return
	}
	p := n.net.Packet()
	p.From, p.To, p.Group, p.Body = int32(n.rank), network.Multicast, int32(d.head.Subgroup), d
	p.Bytes, p.Count = int32(wire.DataSize+d.size), n.packets(d.size)
	n.net.Send(p)
}

// room is how many chunks the slowest receiver of a lossless fabric has room for.
func (f *rankFabric) room() int {
	n := f.n
	if f.held == nil {
		return n.Burst
	}
	left := n.Slots
	for _, m := range n.ranks {
		if m != n && !m.dead {
			left = min(left, n.Slots-len(m.fabric.held[n.rank]))
		}
	}
	return max(0, left)
}

// Control implements fabric.Gather: repairs go a burst at a time.
func (f *rankFabric) Control(to int, c *wire.Control, payload []byte) bool {
	n := f.n
	if f.full(to) {
		f.refused = true
		return false // what arrives there looks again for us
	}
	m, class := &Message{Control: *c, life: n.life}, uint8(network.Control)
	if c.HasChunk() {
		if f.repairs == 0 {
			f.refused = true
			f.look(max(f.backlog(0), 1))
			return false
		}
		f.repairs--
		class = network.Repair
		f.fill(m, payload)
	}
	n.markMessage(c)
	n.result.Control[c.Kind]++
	if limit := n.connection(); limit > 0 {
		if f.queued == nil {
			f.queued = map[int]int{}
		}
		f.queued[to] += m.size()
	}
	p := n.net.Packet()
	p.From, p.To, p.Reliable, p.Class, p.Body = int32(n.rank), int32(to), true, class, m
	p.Bytes, p.Count = int32(m.size()), n.packets(m.Payload())
	n.net.Send(p)
	return true
}

// fill gives a message the chunk that follows it. A digest does not tell one chunk from another, so there it is taken
// on trust that this rank has it.
func (f *rankFabric) fill(m *Message, payload []byte) {
	n := f.n
	if !n.Digest {
		m.payload = bytes.Clone(payload)
		return
	}
	b := n.operation(m.Seq)
	if at, in := b.offset(payload); len(payload) > 0 && (!in || at != b.start(b.shard(m.Root))+int(m.PSN)*n.Core.Chunk) {
		n.fail("rank %d: sends %+v from %d", n.rank, m.Control, at)
	}
	m.token = n.token(int(m.Root), b.index, int(m.PSN))
}

// full reports whether the connection to a rank takes nothing more.
func (f *rankFabric) full(to int) bool {
	limit := f.n.connection()
	return limit > 0 && f.queued[to] >= limit
}

// delivered takes a message off the connection to a rank.
func (f *rankFabric) delivered(to int, m *Message) {
	full := f.full(to)
	if f.queued != nil {
		f.queued[to] -= m.size()
	}
	if full && !f.n.dead && !f.n.gone {
		f.look(0)
	}
}

// Flush implements fabric.Gather: nothing waits here.
func (f *rankFabric) Flush() {}

// Poll implements fabric.Gather. A packet comes as one event; that others wait behind it in the
// host's queue is said as a fabric says it that has not reached its end.
func (f *rankFabric) Poll(s fabric.Sink, budget int) (count int, more bool) {
	n := f.n
	if f.broken >= 0 {
		to := f.broken
		f.broken = -1
		s.Broken(to, fmt.Errorf("nothing was delivered for %v", n.Net.GiveUp))
		count++
	}
	came := min(len(f.inbox), budget-count)
	for i := range came {
		if n.Forged > 0 && n.forger.Float64() < n.Forged {
			f.forge(s)
		}
		f.receive(s, &f.inbox[i])
	}
	if came == len(f.inbox) { // as most often
		f.inbox = f.inbox[:0]
	} else {
		f.inbox = f.inbox[:copy(f.inbox, f.inbox[came:])]
	}
	count += came
	for r := range f.held {
		count += f.take(s, r, budget-count)
	}
	return count, len(f.inbox) > 0 || came > 0 && f.waits()
}

// waits reports whether packets wait in the host's queue. It matters only once the engine's deadline
// has passed, for which the rank has a timer. While that is still to come, either the deadline is, or the
// timer has been put off because packets wait.
func (f *rankFabric) waits() bool {
	n := f.n
	return n.timerAt > n.net.Now() || n.net.Busy(n.rank) > n.net.Now()
}

// settle ends a round: what the engine has not polled calls for another, unless it polls no more.
func (f *rankFabric) settle() {
	if len(f.inbox) > 0 && f.n.failed != nil {
		f.inbox = f.inbox[:0]
	}
	if len(f.inbox) > 0 {
		f.look(0)
	}
}

// receive hands a packet to the engine.
func (f *rankFabric) receive(s fabric.Sink, p *received) {
	n := f.n
	switch b := p.body.(type) {
	case *Datagram:
		if b.head.Job == n.number() { // a socket filter drops what another job sends
			f.place(s, &b.head, b.size, b.payload, b.token)
		}
	case *Message:
		if b.life != n.life {
			return // its connection is closed
		}
		n.markReceived(&b.Control)
		if !b.HasChunk() {
			s.Control(p.from, &b.Control)
			return
		}
		h := wire.DataOf(&b.Control)
		f.place(s, &h, b.Payload(), b.payload, b.token)
	default:
		n.fail("rank %d: a packet with %T", n.rank, p.body)
	}
}

// place offers a chunk to the engine and puts it where it says.
func (f *rankFabric) place(s fabric.Sink, h *wire.Data, size int, payload []byte, token uint64) fabric.Verdict {
	expected := s.Expect(h)
	dst, verdict, _ := s.Accept(h, size)
	if verdict == fabric.Take && !f.n.Digest && len(expected.Dst) > 0 && &expected.Dst[0] != &dst[0] {
		f.n.fail("rank %d: expects %+v elsewhere than it is placed", f.n.rank, h)
	}
	if verdict == fabric.Take && f.n.put(h, dst, payload, token) {
		f.n.moved()
		s.Received(h)
	}
	return verdict
}

// take takes what a root has published on a lossless fabric, as far as it may.
func (f *rankFabric) take(s fabric.Sink, root, most int) (count int) {
	q := &f.held[root]
	for len(*q) > 0 {
		if count == most {
			f.look(0)
			break
		}
		d := (*q)[0]
		if f.place(s, &d.head, d.size, d.payload, d.token) == fabric.Hold {
			break
		}
		count++
		*q = (*q)[1:]
		f.n.ranks[root].fabric.look(0)
	}
	return count
}

// look has the rank driven in a while, or sooner. Where a port waits for credit, its backlog does not
// tell for how long.
func (f *rankFabric) look(after multicast.Time) {
	if f.n.Net.Lossless {
		after = max(after, f.n.Net.Latency/2)
	}
	if at := f.n.net.Now() + after; f.lookAt == 0 || at < f.lookAt {
		f.lookAt = at
		f.n.at(at, wakeLook, int(at))
	}
}

// backlog is how long the NIC that a subgroup leaves by is busy.
func (f *rankFabric) backlog(subgroup int) multicast.Time {
	return f.n.net.Backlog(f.n.rank, subgroup%f.n.net.Tree().Planes())
}

// Wake implements fabric.Gather.
func (f *rankFabric) Wake() { f.look(0) }
