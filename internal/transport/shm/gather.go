package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/streamcopy"
)

// Gather is the multicast fabric of a region: each rank owns one ring of
// chunks that all others read. It implements fabric.Gather.
type Gather struct {
	fabric.Copies
	win     *Region
	closed  bool // guarded by win.mu
	bells   []doorbell
	sleeper sleeper
	tally   tally

	own   ownRing
	rings []readRing // by rank; the own entry stays empty
	next  int        // rank whose ring Poll reads first
	posts mailboxes

	broken     []error // by rank
	unreported []int   // broken ranks that the sink does not know of
	header     wire.Data
	message    wire.Control
}

var (
	_ fabric.Gather = (*Gather)(nil)
	_ fabric.Rester = (*Gather)(nil)
)

// ownRing is the writer's side of a ring. Positions count chunks.
type ownRing struct {
	head  *atomic.Uint64
	tails []*atomic.Uint64 // by reader
	slots slots
	at    uint64 // next chunk to write
	tail  uint64 // slowest reader, as last seen
	full  bool   // the last Multicast was refused
}

// readRing is a reader's side of a ring.
type readRing struct {
	head  *atomic.Uint64
	tail  *atomic.Uint64
	slots slots
	at    uint64 // next chunk to read
	seen  uint64 // head when Poll last left the ring
}

func newGather(w *Region) *Gather {
	l, p, size := w.lay, w.lay.places(), w.lay.Size
	g := &Gather{win: w, bells: make([]doorbell, size), rings: make([]readRing, size), broken: make([]error, size)}
	for r := range size {
		g.bells[r] = newDoorbell(w.mem, p.bells+r*line)
		at := p.rings + r*l.ringBytes()
		s := slots{
			mem: w.mem[p.slots+r*l.Slots*l.slotBytes():][:l.Slots*l.slotBytes()], chunk: l.Chunk, stride: l.slotBytes(),
			count: uint64(l.Slots),
		}
		if r != w.rank {
			g.rings[r] = readRing{head: word64(w.mem, at), tail: word64(w.mem, at+(1+w.rank)*line), slots: s}
			continue
		}
		g.own = ownRing{head: word64(w.mem, at), slots: s}
		for reader := range size {
			g.own.tails = append(g.own.tails, word64(w.mem, at+(1+reader)*line))
		}
	}
	g.sleeper.init(g.bells[w.rank], size)
	g.posts = newMailboxes(w)
	return g
}

// Traits says that the fabric is lossless and keeps chunks that nobody has asked for
// yet.
func (g *Gather) Traits() fabric.Traits {
	return fabric.Traits{Name: "shm", Chunk: g.win.lay.Chunk, Lossless: true}
}

// Unsent is always 0: others can read a chunk as soon as it is taken.
func (g *Gather) Unsent() int { return 0 }

// Multicast publishes chunks while the ring has free slots.
func (g *Gather) Multicast(r *fabric.Run) int {
	if g.win.lay.Size == 1 {
		return r.Count
	}
	o, chunk := &g.own, g.win.lay.Chunk
	header := r.Head
	var n int
	var bytes, calls uint64
	for n < r.Count {
		if o.at-o.tail == o.slots.count {
			if o.tail = g.slowest(); o.at-o.tail == o.slots.count {
				break
			}
		}
		payload := r.Shard[min(int(header.PSN)*chunk, len(r.Shard)):]
		payload = payload[:min(chunk, len(payload))]
		o.slots.put(o.at, &header, payload)
		o.at++
		o.head.Store(o.at)
		calls += g.ringAll(forData)
		bytes += uint64(wire.DataSize + len(payload))
		header.PSN++
		n++
	}
	o.full = n < r.Count
	g.tally.sent(n, bytes, calls)
	return n
}

// slowest looks up the position of the slowest reader.
func (g *Gather) slowest() uint64 {
	o := &g.own
	low := o.at
	for r, t := range o.tails {
		if r == g.win.rank || g.broken[r] != nil {
			continue
		}
		tail := t.Load()
		if o.at-tail > o.slots.count {
			g.fail(r, fmt.Errorf("shm: it has read %d chunks of a ring that holds %d to %d", tail, o.at-o.slots.count, o.at))
			continue
		}
		if o.at-tail > o.at-low {
			low = tail
		}
	}
	return low
}

func (g *Gather) ringAll(reason uint32) (calls uint64) {
	for r := range g.bells {
		if r != g.win.rank {
			calls += g.bells[r].ring(reason)
		}
	}
	return calls
}

// Control puts a message into the mailbox of a neighbour in the circulant
// graph. A Repair, which a fabric that loses nothing does not carry, breaks the
// path, and so does a message to any other rank.
func (g *Gather) Control(to int, m *wire.Control, payload []byte) bool {
	if g.broken[to] != nil {
		return true // Poll has told the sink, or will; nobody waits for this message.
	}
	b := &g.posts.out[to]
	switch {
	case b.head == nil:
		g.fail(to, errors.New("shm: there is no mailbox for it, only for ranks a power of two away"))
		return true
	case m.Payload() > 0 || len(payload) > 0:
		g.fail(to, fmt.Errorf("shm: %v with a payload for it: shared memory loses nothing and carries no repairs", m.Kind))
		return true
	}
	fitted, err := b.put(m)
	if err != nil {
		g.fail(to, err)
		return true
	}
	if !fitted {
		return false
	}
	g.tally.control(wire.ControlSize, g.bells[to].ring(forData))
	return true
}

// Flush does nothing: a message is on its way when Control returns.
func (g *Gather) Flush() {}

// Poll hands messages, then chunks, to the sink.
func (g *Gather) Poll(s fabric.Sink, budget int) (n int, more bool) {
	n = g.pollMailboxes(s, budget)
	size := g.win.lay.Size
	for i := 0; i < size && n < budget; i++ {
		r := g.next + i
		if r >= size {
			r -= size
		}
		if r == g.win.rank || g.broken[r] != nil {
			continue
		}
		n += g.pollRing(s, r, budget-n)
		if n >= budget {
			g.next = r
		}
	}
	for len(g.unreported) > 0 {
		r := g.unreported[0]
		g.unreported = g.unreported[1:]
		s.Broken(r, g.broken[r])
	}
	return n, n >= budget
}

// pollRing reads up to budget chunks of a rank's ring, and stops before one
// that the sink wants to stay there.
func (g *Gather) pollRing(s fabric.Sink, rank, budget int) (n int) {
	r, h := &g.rings[rank], &g.header
	head := r.head.Load()
	if head-r.at > r.slots.count {
		g.fail(rank,
			fmt.Errorf("shm: it has published %d chunks in a ring of %d that is read up to %d", head, r.slots.count, r.at))
		return 0
	}
	var bytes, dropped, calls uint64
	r.seen = r.at
chunks:
	for ; r.at != head; n++ {
		if n == budget {
			return g.polled(n, bytes, dropped, calls)
		}
		payload, err := r.slots.get(r.at, h)
		if err == nil && int(h.Root) != rank {
			err = fmt.Errorf("chunk %d is of another root", r.at)
		}
		if err != nil {
			g.fail(rank, fmt.Errorf("shm: its ring: %w", err))
			break
		}
		dst, verdict, stream := s.Accept(h, len(payload))
		switch verdict {
		case fabric.Hold:
			break chunks
		case fabric.Drop:
			dropped++
		case fabric.Take:
			if stream {
				streamcopy.Copy(dst, payload)
			} else {
				copy(dst, payload)
			}
			bytes += uint64(wire.DataSize + len(payload))
			s.Received(h)
		}
		r.at++
		r.tail.Store(r.at)
		calls += g.bells[rank].ring(forRoom)
	}
	r.seen = head
	return g.polled(n, bytes, dropped, calls)
}

func (g *Gather) polled(n int, bytes, dropped, calls uint64) int {
	g.tally.received(n, bytes, dropped, calls)
	return n
}

// pollMailboxes reads up to budget messages.
func (g *Gather) pollMailboxes(s fabric.Sink, budget int) (n int) {
	for i := range g.posts.in {
		b := &g.posts.in[i]
		if g.broken[b.from] != nil {
			continue
		}
		for n < budget {
			got, err := b.get(&g.message)
			if err != nil {
				g.fail(b.from, err)
			}
			if !got {
				break
			}
			n++
			g.tally.syscalls(g.bells[b.from].ring(forRoom))
			s.Control(b.from, &g.message)
		}
	}
	return n
}

// fail gives up the path to a rank. The next Poll tells the sink.
func (g *Gather) fail(rank int, err error) {
	if g.broken[rank] != nil {
		return
	}
	g.broken[rank] = err
	g.unreported = append(g.unreported, rank)
}

// Sleep looks again, then yields, then sleeps on a futex.
func (g *Gather) Sleep(d time.Duration) {
	reason := forData
	if g.own.full || g.posts.full() {
		reason |= forRoom
	}
	g.tally.syscalls(g.sleeper.sleep(d, reason, g))
}

// Rest implements fabric.Rester: arrivals stay in the region until they are asked for.
func (g *Gather) Rest(func()) bool { return len(g.unreported) == 0 }

// Rouse implements fabric.Rester.
func (g *Gather) Rouse() {}

// Wake ends a Sleep, now or the next one.
func (g *Gather) Wake() { g.win.wake(&g.sleeper, &g.closed) }

// ready tells whether anything changed since Poll, Multicast and Control last looked.
func (g *Gather) ready() bool {
	for i := range g.rings {
		if r := &g.rings[i]; r.head != nil && r.head.Load() != r.seen && g.broken[i] == nil {
			return true
		}
	}
	if o := &g.own; o.full && g.slowest() != o.tail {
		return true
	}
	return len(g.unreported) > 0 || g.posts.ready()
}

// Stats may be called from any goroutine.
func (g *Gather) Stats() fabric.Stats { return g.tally.stats() }

// Close lets go of the region. Streams of the same region stay.
func (g *Gather) Close() error { return g.win.release(&g.closed) }
