package world

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// memoryGather is the multicast fabric of a region as one of its ranks has it: fabric.Gather.
type memoryGather struct {
	fabric.Copies
	sleeper
	copier
	*share
	boxed  []int // members with a mailbox each way
	seen   []int // of each ring: chunks that were there when Poll left it
	full   bool  // the last Multicast was refused
	next   int   // the member with the ring that is read first
	broken []error
	untold []int // broken members that the sink does not know of
	stats  fabric.Stats
	header wire.Data
	letter wire.Control
}

// slots hold the chunks of one writer until all others have read them.
type slots struct {
	chunks []arrival // from the one on that the slowest has not read
	base   int       // its number
	tails  []int     // number of the next chunk, by reader
}

// box holds the messages of one rank to another.
type box struct {
	letters []letter
	refused bool
}

type letter struct {
	at time.Time
	m  wire.Control
}

func newMemoryGather(s *share) *memoryGather {
	g := &memoryGather{
		sleeper: newSleeper(s.rank), share: s, seen: make([]int, s.lay.Size), broken: make([]error, s.lay.Size),
	}
	for _, away := range topology.Distances(s.lay.Size) {
		g.boxed = append(g.boxed, (s.member+away)%s.lay.Size)
	}
	return g
}

// ringBell wakes a rank of the region, if it has it.
func (r *region) ringBell(member int) {
	if g := r.shares[member].gather; g != nil {
		g.ring()
	}
}

// Traits implements fabric.Gather.
func (g *memoryGather) Traits() fabric.Traits {
	return fabric.Traits{Name: "shm", Chunk: g.lay.Chunk, Lossless: true}
}

// Unsent implements fabric.Gather.
func (g *memoryGather) Unsent() int { return 0 }

// Multicast implements fabric.Gather.
func (g *memoryGather) Multicast(r *fabric.Run) (n int) {
	if g.lay.Size == 1 {
		return r.Count
	}
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	own := &g.rings[g.member]
	head := r.Head
	for ; n < r.Count && !g.still() && own.room(g) > 0; n++ {
		at := min(int(head.PSN)*g.lay.Chunk, len(r.Shard))
		payload := slices.Clone(r.Shard[at:min(at+g.lay.Chunk, len(r.Shard))])
		own.chunks = append(own.chunks, arrival{g.copied(len(payload)), head, payload})
		g.stats.SentChunks++
		g.stats.SentBytes += uint64(wire.DataSize + len(payload))
		head.PSN++
	}
	if g.full = n < r.Count; n > 0 {
		for to := range g.lay.Size {
			if to != g.member {
				g.ringBell(to)
			}
		}
	}
	return n
}

// room returns how many chunks the slowest reader leaves room for.
func (r *slots) room(g *memoryGather) int {
	slowest := r.base + len(r.chunks)
	for reader, tail := range r.tails {
		if reader != g.member && g.broken[reader] == nil {
			slowest = min(slowest, tail)
		}
	}
	r.chunks = r.chunks[slowest-r.base:]
	r.base = slowest
	return g.lay.Slots - len(r.chunks)
}

// Control implements fabric.Gather.
func (g *memoryGather) Control(to int, m *wire.Control, payload []byte) bool {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	switch {
	case g.broken[to] != nil:
		return true
	case !slices.Contains(g.boxed, to):
		g.fail(to, errors.New("shm: there is no mailbox for it"))
		return true
	case m.Payload() > 0 || len(payload) > 0:
		g.fail(to, fmt.Errorf("shm: %v with a payload for it", m.Kind))
		return true
	}
	b := &g.boxes[g.member][to]
	if b.refused = len(b.letters) >= letters || g.still(); b.refused {
		return false
	}
	b.letters = append(b.letters, letter{g.copied(wire.ControlSize), *m})
	g.stats.ControlBytes += wire.ControlSize
	g.ringBell(to)
	return true
}

func (g *memoryGather) fail(member int, err error) {
	if g.broken[member] == nil {
		g.broken[member] = err
		g.untold = append(g.untold, member)
	}
}

// Flush implements fabric.Gather.
func (g *memoryGather) Flush() {}

// Poll implements fabric.Gather: messages first, then chunks.
func (g *memoryGather) Poll(s fabric.Sink, budget int) (n int, more bool) {
	for _, from := range g.boxed {
		for n < budget && g.read(from) {
			n++
			s.Control(from, &g.letter)
		}
	}
	for i := range g.lay.Size {
		from := (g.next + i) % g.lay.Size
		if from == g.member || n >= budget {
			continue
		}
		if n += g.pollRing(s, from, budget-n); n >= budget {
			g.next = from
		}
	}
	for len(g.untold) > 0 {
		member := g.untold[0]
		g.untold = g.untold[1:]
		s.Broken(member, g.broken[member])
	}
	return n, n >= budget
}

// read takes a message of a neighbour.
func (g *memoryGather) read(from int) bool {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	b := &g.boxes[from][g.member]
	if g.still() || len(b.letters) == 0 || b.letters[0].at.After(time.Now()) {
		return false
	}
	g.letter = b.letters[0].m
	b.letters = b.letters[1:]
	if b.refused {
		b.refused = false
		g.ringBell(from)
	}
	return true
}

// pollRing reads chunks of a member's ring, up to one that the sink wants to stay there.
func (g *memoryGather) pollRing(s fabric.Sink, from, budget int) (n int) {
	for n < budget {
		payload, ok := g.peek(from)
		if !ok {
			return n
		}
		to, verdict, _ := s.Accept(&g.header, len(payload))
		switch verdict {
		case fabric.Hold:
			return n
		case fabric.Take:
			copy(to, payload)
			s.Received(&g.header)
		}
		g.taken(from, len(payload), verdict)
		n++
	}
	g.host.world.mu.Lock()
	g.seen[from] = g.rings[from].tails[g.member] // there may be more
	g.host.world.mu.Unlock()
	return n
}

// peek looks at the next chunk of a ring, and notes how many are there.
func (g *memoryGather) peek(from int) (payload []byte, ok bool) {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	r, now := &g.rings[from], time.Now()
	if g.still() {
		return nil, false
	}
	next := r.tails[g.member]
	g.seen[from] = next
	for i := next - r.base; i < len(r.chunks) && !r.chunks[i].at.After(now); i++ {
		g.seen[from]++
	}
	if g.seen[from] == next {
		return nil, false
	}
	c := &r.chunks[next-r.base]
	g.header = c.head
	return c.payload, true
}

// taken counts a chunk that was read or dropped, and tells the writer.
func (g *memoryGather) taken(from, bytes int, v fabric.Verdict) {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	g.rings[from].tails[g.member]++
	if v == fabric.Drop {
		g.stats.Dropped++
	} else {
		g.stats.ReceivedChunks++
		g.stats.ReceivedBytes += uint64(wire.DataSize + bytes)
	}
	if w := g.shares[from].gather; w != nil && w.full {
		g.ringBell(from)
	}
}

// Sleep implements fabric.Sleeper.
func (g *memoryGather) Sleep(d time.Duration) {
	w := g.host.world
	w.mu.Lock()
	now := time.Now()
	if !g.still() {
		d = min(d, g.soonest(now, d))
	}
	w.mu.Unlock()
	g.sleep(d)
}

// soonest returns how long it takes at least, most at most, until there is something that Poll has
// not seen, or room for what was refused.
func (g *memoryGather) soonest(now time.Time, most time.Duration) time.Duration {
	if len(g.untold) > 0 || g.full && g.rings[g.member].room(g) > 0 {
		g.full = false
		return 0
	}
	for from := range g.rings {
		r := &g.rings[from]
		if i := g.seen[from] - r.base; from != g.member && i < len(r.chunks) {
			most = min(most, r.chunks[i].at.Sub(now))
		}
	}
	for _, from := range g.boxed {
		if b := &g.boxes[from][g.member]; len(b.letters) > 0 {
			most = min(most, b.letters[0].at.Sub(now))
		}
	}
	return most
}

// Stats implements fabric.Gather.
func (g *memoryGather) Stats() fabric.Stats {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	return g.stats
}

// Close implements fabric.Gather.
func (g *memoryGather) Close() error { return nil }
