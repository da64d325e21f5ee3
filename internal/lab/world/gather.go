package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const (
	// eager is what a queue holds beside a window: an epoch of eager chunks.
	eager = 128
	// outMax bounds what waits for a peer that does not read, in bytes.
	outMax = 1 << 20
	// backlog is how much a host's link may have to send before a sender is told to wait.
	backlog = 2 * time.Millisecond
	// datagramHeaders are those of UDP over IPv4.
	datagramHeaders = 28
)

// gather is the fabric of Allgather and Broadcast: fabric.Gather.
type gather struct {
	fabric.Copies
	registered []registered // of world.mu, as what follows
	pulls      []*pull      // under way, oldest first
	flushed    bool         // one has failed
	withdrawn  bool         // nobody reads here any more
	sleeper
	o      udp.Options
	traits fabric.Traits
	peers  []*peer      // by rank; nil where there is no connection
	queue  []arrival    // by arrival; of world.mu
	free   time.Time    // when the link has room again; zero: it has
	looked time.Time    // for connections that stall
	chunk  wire.Control // arguments of interface calls, kept off the heap
	head   wire.Data
	stats  fabric.Stats // of who drives
	shown  atomic.Pointer[fabric.Stats]
}

// arrival is a chunk in a queue.
type arrival struct {
	at      time.Time
	head    wire.Data
	payload []byte
}

// peer is the control connection to a rank.
type peer struct {
	rank int
	end  *end
	in   []byte // read, and not delivered yet
	out  []byte // to be sent
	lost bool
}

// Gather implements hostnet.Network.
func (h *Host) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) {
		return nil, failing("epoll_create1", syscall.EMFILE)
	}
	g := &gather{
		sleeper: newSleeper(h), o: *o, peers: make([]*peer, o.Size),
		traits: fabric.Traits{Name: "udp", Chunk: o.Chunk, Window: w.cfg.Queue, Reads: w.cfg.Reads},
	}
	if o.Window > 0 {
		g.traits.Window = max(1, min(g.traits.Window, o.Window/o.Chunk))
	}
	g.stats.Repairs = make([]uint64, o.Size)
	g.show()
	for rank, c := range control {
		e := endOf(c)
		e.bell = g.ring
		g.peers[rank] = &peer{rank: rank, end: e}
	}
	at := multicastGroup(o)
	w.members[at] = append(w.members[at], g)
	return g, nil
}

func (g *gather) host0() *Host { return g.host }

// Traits implements fabric.Gather.
func (g *gather) Traits() fabric.Traits { return g.traits }

// Unsent implements fabric.Gather. All that the host sends is in one queue.
func (g *gather) Unsent() int {
	w := g.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Rate == 0 {
		return 0
	}
	return int(max(0, time.Until(g.host.sent)) / w.last(datagramHeaders+wire.DataSize+g.o.Chunk))
}

// Multicast implements fabric.Gather.
func (g *gather) Multicast(r *fabric.Run) int {
	w := g.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if g.host.stopped != nil || g.host.gone {
		return 0
	}
	if w.is(Refused, g.host) {
		g.stats.Refused += uint64(r.Count)
		return r.Count
	}
	head := r.Head
	head.Job, head.Root = g.o.Job, uint16(g.o.Rank)
	first := int(head.PSN) * g.o.Chunk
	bytes := slices.Clone(r.Shard[min(first, len(r.Shard)):min(first+r.Count*g.o.Chunk, len(r.Shard))])
	unreachable := w.is(Unreachable, g.host)
	done := 0
	for ; done < r.Count; done++ {
		if g.host.sent.After(now.Add(backlog)) {
			g.free = g.host.sent.Add(-backlog)
			break
		}
		payload := bytes[min(done*g.o.Chunk, len(bytes)):min((done+1)*g.o.Chunk, len(bytes))]
		head.PSN = r.Head.PSN + uint32(done)
		g.stats.SentChunks++
		g.stats.SentBytes += uint64(wire.DataSize + len(payload))
		if unreachable && done%2 == 0 {
			g.stats.Unreachable++ // the news is told in place of a datagram
			continue
		}
		packet := datagramHeaders + wire.DataSize + len(payload)
		left := g.host.leave(now, packet)
		arrived := map[*machine]time.Time{g.host.machine: now.Add(loopback)} // once a host; zero: it does not
		for _, m := range w.members[multicastGroup(&g.o)] {
			to, ok := m.(*gather)
			if !ok || to == g || to.o.Job != g.o.Job || packet > w.cfg.MTU {
				continue
			}
			at, known := arrived[to.host.machine]
			if !known {
				if w.passes(g.host, to.host, Multicast, packet) {
					at = to.host.arrive(left, packet)
				}
				arrived[to.host.machine] = at
			}
			if !at.IsZero() {
				late, again := w.strays()
				to.arrives(arrival{at.Add(late), head, payload})
				if again {
					to.arrives(arrival{at, head, payload})
				}
			}
		}
	}
	return done
}

// arrives puts a datagram into the queue, if it has room. world.mu is held.
func (g *gather) arrives(d arrival) {
	if len(g.queue) >= g.host.world.cfg.Queue+eager {
		g.host.world.lost++
		return
	}
	at := len(g.queue)
	for at > 0 && g.queue[at-1].at.After(d.at) {
		at--
	}
	g.queue = slices.Insert(g.queue, at, d)
	g.ring()
}

// Control implements fabric.Gather.
func (g *gather) Control(to int, m *wire.Control, payload []byte) bool {
	p := g.peers[to]
	if p == nil {
		panic(fmt.Sprintf("rank %d has no control connection to rank %d", g.o.Rank, to))
	}
	if p.lost {
		return true
	}
	n := len(p.out)
	if n+wire.ControlSize+len(payload) > outMax {
		return false
	}
	p.out = append(p.out, make([]byte, wire.ControlSize)...)
	m.Put(p.out[n:])
	p.out = append(p.out, payload...)
	return true
}

// Flush implements fabric.Gather.
func (g *gather) Flush() {
	for _, p := range g.peers {
		if p == nil || len(p.out) == 0 || p.lost {
			continue
		}
		g.host.world.mu.Lock()
		n, err := p.end.give(slices.Clone(p.out))
		g.host.world.mu.Unlock()
		if err != nil {
			n = len(p.out) // reading tells why
		}
		g.stats.ControlBytes += uint64(n)
		p.out = p.out[:copy(p.out, p.out[n:])]
	}
}

// Poll implements fabric.Gather.
func (g *gather) Poll(s fabric.Sink, budget int) (done int, more bool) {
	g.free = time.Time{}
	for done < budget && g.next(s) {
		done++
	}
	done += g.pulled(s)
	g.loseStalled(s)
	for _, p := range g.peers {
		if p != nil && !p.lost && done < budget {
			done += g.hear(p, s, budget-done)
		}
	}
	if done > 0 {
		g.show()
	}
	return done, done >= budget
}

// next delivers a datagram that has arrived.
func (g *gather) next(s fabric.Sink) bool {
	w := g.host.world
	w.mu.Lock()
	if g.host.stopped != nil || len(g.queue) == 0 || g.queue[0].at.After(time.Now()) {
		w.mu.Unlock()
		return false
	}
	d := g.queue[0]
	g.queue = g.queue[1:]
	w.mu.Unlock()
	g.stats.ReceivedChunks++
	g.stats.ReceivedBytes += uint64(wire.DataSize + len(d.payload))
	g.head = d.head
	g.place(s, d.payload)
	return true
}

// place hands the chunk of g.head to the sink.
func (g *gather) place(s fabric.Sink, payload []byte) {
	to, verdict, _ := s.Accept(&g.head, len(payload))
	if verdict != fabric.Take {
		g.stats.Dropped++
		return
	}
	copy(to, payload)
	s.Received(&g.head)
}

// hear delivers what a peer has said.
func (g *gather) hear(p *peer, s fabric.Sink, budget int) (done int) {
	g.host.world.mu.Lock()
	b, err := p.end.take(streamMax)
	p.in = append(p.in, b...)
	g.host.world.mu.Unlock()
	for done < budget && g.message(p, s) {
		done++
	}
	if done < budget && err != nil {
		cause := fmt.Errorf("control connection: %w", err)
		if errors.Is(err, io.EOF) {
			cause = fmt.Errorf("closed its control connection: %w", err)
		}
		g.lose(p, s, cause)
	}
	return done
}

// message delivers a message that is there as a whole.
func (g *gather) message(p *peer, s fabric.Sink) bool {
	m := &g.chunk
	if p.lost || m.Get(p.in) != nil || len(p.in) < wire.ControlSize+m.Payload() {
		return false
	}
	payload := p.in[wire.ControlSize:][:m.Payload()]
	p.in = p.in[wire.ControlSize+m.Payload():]
	if !m.HasChunk() {
		s.Control(p.rank, m)
		return true
	}
	if m.Kind == wire.Repair {
		g.stats.Repairs[m.Root]++
	}
	g.head = wire.DataOf(m)
	g.place(s, payload)
	return true
}

func (g *gather) lose(p *peer, s fabric.Sink, cause error) {
	p.lost = true
	g.host.world.mu.Lock()
	p.end.close()
	g.host.world.mu.Unlock()
	s.Broken(p.rank, fmt.Errorf("udp: %w", cause))
}

// loseStalled gives up the connections on which nothing is acknowledged any more.
func (g *gather) loseStalled(s fabric.Sink) {
	now := time.Now()
	if g.o.Stall == 0 || now.Sub(g.looked) < sys.StallPause(g.o.Stall) {
		return
	}
	g.looked = now
	for _, p := range g.peers {
		if p == nil || p.lost {
			continue
		}
		g.host.world.mu.Lock()
		stall := p.end.stalled(g.o.Stall)
		g.host.world.mu.Unlock()
		if stall != nil {
			g.lose(p, s, stall)
		}
	}
}

// Sleep implements fabric.Sleeper.
func (g *gather) Sleep(d time.Duration) {
	w := g.host.world
	w.mu.Lock()
	now := time.Now()
	if len(g.queue) > 0 {
		d = min(d, g.queue[0].at.Sub(now))
	}
	if !g.free.IsZero() {
		d = min(d, g.free.Sub(now))
	}
	w.mu.Unlock()
	g.sleep(d)
}

// Stats implements fabric.Gather.
func (g *gather) Stats() fabric.Stats { return *g.shown.Load() }

func (g *gather) show() {
	s := g.stats
	s.Repairs = slices.Clone(s.Repairs)
	g.shown.Store(&s)
}

// Close implements fabric.Gather.
func (g *gather) Close() error {
	g.Flush()
	g.host.world.mu.Lock()
	defer g.host.world.mu.Unlock()
	g.host.world.leave(multicastGroup(&g.o), g)
	g.withdrawn = true
	for _, p := range g.peers {
		if p != nil {
			p.end.bell = nil
			p.end.close()
		}
	}
	return nil
}

// sleeper waits for a bell.
type sleeper struct {
	host *Host
	bell chan struct{}
	nap  *time.Timer
}

func newSleeper(h *Host) sleeper {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return sleeper{h, make(chan struct{}, 1), t}
}

func (s *sleeper) ring() { ring(s.bell) }

// Wake implements fabric.Sleeper.
func (s *sleeper) Wake() { s.ring() }

func (s *sleeper) sleep(d time.Duration) {
	s.host.world.mu.Lock()
	stopped := s.host.stopped
	s.host.world.mu.Unlock()
	if stopped != nil {
		<-stopped
		return
	}
	if d <= 0 {
		return
	}
	s.nap.Reset(d)
	select {
	case <-s.bell:
	case <-s.nap.C:
	}
	s.nap.Stop()
}
