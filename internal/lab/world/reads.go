package world

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Of reads as RDMA devices do them.
const (
	mostReads   = 4 // under way at a time
	readTries   = 7 // until one has failed
	readTimer   = 67 * time.Millisecond
	readHeaders = 82 // bytes of a request, and of a response without its payload
)

// registered is memory of a process that its right neighbours may read.
type registered struct {
	key   uint32
	bytes []byte
}

// pull is a read that is under way.
type pull struct {
	wire.Read
	tries   int
	payload []byte
	ended   bool
	failed  bool
}

// Register implements fabric.Registers.
func (g *gather) Register(memory []byte) (release func() error, err error) {
	w := g.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys++
	key := w.keys
	g.registered = append(g.registered, registered{key, memory})
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		g.registered = slices.DeleteFunc(g.registered, func(m registered) bool { return m.key == key })
		return nil
	}, nil
}

// holds returns the part of registered memory that n bytes at an address are, or nil. world.mu is held.
func (m *registered) holds(addr uint64, n int) []byte {
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))))
	if addr < start || addr+uint64(n) > start+uint64(len(m.bytes)) {
		return nil
	}
	return m.bytes[addr-start:][:n]
}

// Readable implements fabric.Gather.
func (g *gather) Readable(b []byte) (addr uint64, key uint32, ok bool) {
	w := g.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	for i := range g.registered {
		if m := &g.registered[i]; m.holds(addr, len(b)) != nil {
			return addr, m.key, true
		}
	}
	return 0, 0, false
}

// Read implements fabric.Gather.
func (g *gather) Read(r *wire.Read) bool {
	w := g.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(g.pulls) == mostReads {
		return false
	}
	p := &pull{Read: *r}
	g.pulls = append(g.pulls, p)
	g.ask(p)
	return true
}

// left is the fabric of the left neighbour, or nil: it has closed it. world.mu is held, here and below.
func (g *gather) left() *gather {
	for _, m := range g.host.world.members[multicastGroup(&g.o)] {
		if to, ok := m.(*gather); ok && to.o.Job == g.o.Job && to.o.Rank == g.o.Left {
			return to
		}
	}
	return nil
}

// ask sends the request of a read.
func (g *gather) ask(p *pull) {
	w, from := g.host.world, g.left()
	switch {
	case p.ended:
	case p.tries == readTries:
		g.end(p, nil)
	default:
		p.tries++
		if now := time.Now(); from != nil && !from.host.gone && w.passes(g.host, from.host, Control, readHeaders) {
			late, _ := w.strays()
			at := g.host.carry(from.host, now, readHeaders).Add(late)
			w.after(at.Sub(now), func() { g.answer(p, from) })
			return
		}
		w.after(readTimer, func() { g.ask(p) })
	}
}

// answer reads the memory of another rank; that rank's process has no part in it.
func (g *gather) answer(p *pull, from *gather) {
	w, now := g.host.world, time.Now()
	if p.ended {
		return
	}
	i := slices.IndexFunc(from.registered, func(m registered) bool { return m.key == p.Key })
	switch {
	case from.host.gone || from.host.crashed:
		w.after(readTimer, func() { g.ask(p) })
		return
	case from.withdrawn:
		w.after(w.cfg.Delay, func() { g.end(p, nil) })
		return
	case i < 0 || from.registered[i].holds(p.Addr, p.Bytes) == nil:
		if w.trespass == nil {
			w.trespass = fmt.Errorf("rank %d reads %d bytes of rank %d, of operation %d, whose memory is not registered any "+
				"more",
				g.o.Rank, p.Bytes, from.o.Rank, p.Head.Seq)
		}
		w.after(w.cfg.Delay, func() { g.end(p, nil) })
		return
	case !w.passes(from.host, g.host, Control, readHeaders+p.Bytes):
		w.after(readTimer, func() { g.ask(p) })
		return
	}
	payload := slices.Clone(from.registered[i].holds(p.Addr, p.Bytes))
	w.reads++
	w.after(from.host.carry(g.host, now, readHeaders+p.Bytes).Sub(now), func() { g.end(p, payload) })
}

// end ends a read: without a payload it has failed.
func (g *gather) end(p *pull, payload []byte) {
	p.ended, p.failed, p.payload = true, payload == nil, payload
	g.ring()
}

// pulled delivers what was read, in the order in which it was asked for. After a read that has failed all others fail.
func (g *gather) pulled(s fabric.Sink) (done int) {
	w := g.host.world
	for {
		w.mu.Lock()
		if g.host.stopped != nil || len(g.pulls) == 0 || !g.pulls[0].ended && !g.flushed {
			w.mu.Unlock()
			return done
		}
		p := g.pulls[0]
		g.pulls = g.pulls[1:]
		g.flushed = g.flushed || p.failed
		p.ended = true
		well := !g.flushed
		w.mu.Unlock()
		for i := 0; well && i < p.Count; i++ {
			g.head = p.Head
			g.head.PSN += uint32(i)
			g.stats.Repairs[g.head.Root]++
			g.stats.ReadChunks++
			g.place(s, p.payload[i*g.o.Chunk:min((i+1)*g.o.Chunk, len(p.payload))])
		}
		s.ReadEnded(&p.Read, well)
		done++
	}
}

// Withdraw implements fabric.Gather.
func (g *gather) Withdraw() {
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	g.withdrawn = true
}

// mostLate bounds how late a datagram that strays is.
const mostLate = 3 * time.Millisecond

// strays draws how late a packet is, and whether it is duplicated.
func (w *World) strays() (late time.Duration, again bool) {
	if w.cfg.Stray == 0 || w.rng.Float64() >= w.cfg.Stray {
		return 0, false
	}
	return time.Duration(w.rng.Int64N(int64(mostLate))), w.rng.IntN(2) == 0
}

// after has something done later, with world.mu held.
func (w *World) after(d time.Duration, do func()) {
	time.AfterFunc(max(0, d), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	})
}

// trespassed returns what was read that nobody had to read, or nil.
func (w *World) trespassed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trespass
}
