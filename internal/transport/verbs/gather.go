package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/streamcopy"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Gather is one rank's end of the fabric. It implements fabric.Gather.
type Gather struct {
	udp.Edges
	rank, size, chunk int
	job               uint64
	seals             *seal.Sealer // nil: datagrams go as they are
	before            int          // bytes before a payload
	sources           []netip.Addr
	traits            fabric.Traits
	port              *port
	device            *ibverbs.Device // the port's, like memory: any goroutine may ask them, even after Close
	memory            *memory
	pulls             pulls
	introductionSink  introductionSink
	tclass            uint8
	awaited           uint64        // Sleep ends when as many datagrams are gone; 0: none is waited for
	lent              atomic.Uint64 // bytes
	head              wire.Data
}

var (
	_ fabric.Gather    = (*Gather)(nil)
	_ fabric.Rester    = (*Gather)(nil)
	_ fabric.Registers = (*Gather)(nil)
)

// Those are tags in the poller: of the completion channels of datagrams and of reads. Connections follow.
const (
	channelTag = iota
	readsTag
	firstTag
)

// Open joins the group and takes over the control connections: it leaves o.Conns empty. After an error o.Conns has all
// of them still, as udp.Open does. Subgroups share a queue.
func Open(o udp.Options) (_ *Gather, err error) {
	if o.Chunk < udp.MinChunk {
		return nil, fmt.Errorf("verbs: chunk of %d bytes: want %d at least", o.Chunk, udp.MinChunk)
	}
	receive := depth
	if o.Window > 0 {
		receive = max(1, min(depth, o.Window/o.Chunk))
	}
	g := &Gather{
		rank: o.Rank, size: o.Size, chunk: o.Chunk, job: o.Job, seals: o.Seals, before: o.Head(), sources: o.Sources,
		tclass: uint8(o.DSCP << 2),
	}
	g.introductionSink.g = g
	if g.port, err = openPort(&o, bytesFor(&o), receive); err != nil {
		return nil, err
	}
	g.device, g.memory = g.port.device, g.port.memory
	g.traits = fabric.Traits{Name: "verbs", Chunk: o.Chunk, Window: receive}
	if err = g.connect(&o); err != nil {
		g.Forget()
		return nil, errors.Join(err, g.Close())
	}
	clear(o.Conns)
	return g, nil
}

func (g *Gather) connect(o *udp.Options) error {
	if err := g.Begin("verbs", o, g.serve); err != nil {
		return err
	}
	if err := g.Watch(g.port.queue.FD(), channelTag, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	if o.Size > 1 && !o.Seals.Keyed() { // bytes that are read have no seal
		if err := g.openReads(o); err != nil {
			return err
		}
	}
	if err := g.Connect(firstTag, o.Conns, o.DSCP); err != nil {
		return err
	}
	g.introduce()
	return nil
}

// openReads prepares for repairs that are read. Where the device has no room for them, the group goes on without: all
// are pushed.
func (g *Gather) openReads(o *udp.Options) error {
	if g.pulls.open(g.device, o) != nil {
		return g.pulls.close()
	}
	g.traits.Reads = readChunks
	return g.Watch(g.pulls.completions.FD(), readsTag, unix.EPOLLIN|unix.EPOLLET)
}

// Traits implements fabric.Gather.
func (g *Gather) Traits() fabric.Traits { return g.traits }

// Multicast implements fabric.Gather.
func (g *Gather) Multicast(r *fabric.Run) (done int) {
	for done < r.Count && !g.Failed() {
		n, err := g.port.room()
		if err != nil {
			g.Note(err)
			break
		}
		if n = min(n, r.Count-done); n == 0 {
			g.await(g.port.posted - sendDepth + 1)
			break
		}
		payload := g.fill(r, done, n)
		if err := g.port.send(n, payload); err != nil {
			g.Note(err)
			break
		}
		bytes := 0
		for _, size := range g.port.sizes[:n] {
			bytes += int(size)
		}
		if payload.Bytes > 0 {
			r.Lent = g.port.posted
			g.lent.Add(uint64(payload.Bytes))
		}
		g.CountSent(n, bytes+payload.Bytes)
		done += n
	}
	return done
}

// fill puts the headers of n chunks of a run, from the skip-th on, to the ring, and the chunks as well, unless the
// device finds them in registered memory: then it returns where. Chunks that fit a descriptor, and encrypted ones, are
// always copied.
func (g *Gather) fill(r *fabric.Run, skip, n int) (payload ibverbs.Payload) {
	g.head = r.Head
	g.head.Job, g.head.Root = g.job, uint16(g.rank)
	start := (int(r.Head.PSN) + skip) * g.chunk
	all := r.Shard[start:min(start+n*g.chunk, len(r.Shard))]
	if g.before+len(all) > g.port.queue.Inlined() && !g.seals.Encrypts() {
		payload = g.port.memory.payload(all, g.chunk)
	}
	for i := range n {
		g.head.PSN = r.Head.PSN + uint32(skip+i)
		b, chunk := g.port.slot(i), all[i*g.chunk:min((i+1)*g.chunk, len(all))]
		g.head.Put(b)
		var copied []byte
		if payload.Bytes == 0 {
			copied = b[g.before:][:len(chunk)]
		}
		if !g.seals.Encrypts() {
			copy(copied, chunk)
		}
		if g.seals != nil {
			g.seals.Seal(g.head.Seq, b[:g.before], chunk, copied)
		}
		g.port.sizes[i] = uint32(g.before + len(copied))
	}
	return payload
}

// Returned implements fabric.Gather.
func (g *Gather) Returned(lent uint64) bool {
	if g.port.sent < lent {
		g.Unsent()
	}
	if g.port.sent >= lent {
		return true
	}
	g.await(lent)
	return false
}

// await has Sleep end when so many datagrams are gone.
func (g *Gather) await(gone uint64) {
	if g.awaited == 0 || gone < g.awaited {
		g.awaited = gone
	}
}

// Register implements fabric.Registers.
func (g *Gather) Register(memory []byte) (release func() error, err error) {
	return g.memory.register(memory)
}

// Stats implements fabric.Gather.
func (g *Gather) Stats() fabric.Stats {
	s := g.Edges.Stats()
	s.LentBytes, s.Registrations = g.lent.Load(), g.device.Registrations()
	s.ReadChunks, s.ReadBytes = g.pulls.chunks.Load(), g.pulls.bytes.Load()
	return s
}

// Unsent implements fabric.Gather.
func (g *Gather) Unsent() int {
	sent, err := g.port.queue.Sent()
	g.port.sent = sent
	g.Note(err)
	return int(g.port.posted - sent)
}

// Poll implements fabric.Gather. Half of the budget is the connections' at most: neither side waits for long.
func (g *Gather) Poll(s fabric.Sink, budget int) (done int, more bool) {
	g.introductionSink.Sink = s
	done, more = g.Edges.Poll(&g.introductionSink, max(1, budget/2))
	read := g.pulls.take(s, &g.Edges)
	n, left := g.receive(s, max(1, budget-done))
	return done + read + n, more || left
}

// serve has nothing to do for the completion channels: Poll looks at completions anyway.
func (g *Gather) serve(int, fabric.Sink, int) (int, bool) { return 0, false }

// receive hands arrivals to the sink, and gives their slots back to the device.
func (g *Gather) receive(s fabric.Sink, budget int) (n int, more bool) {
	for more = true; n < budget; n++ {
		var err error
		if more, err = g.port.look(); err != nil || !more {
			g.Note(err)
			break
		}
		datagram, from, err := g.port.take()
		g.Note(err)
		if datagram != nil {
			g.deliver(s, datagram, from)
		}
		if len(g.port.free) >= batchSize {
			g.Note(g.port.post())
		}
	}
	if len(g.port.free) > 0 {
		g.Note(g.port.post())
	}
	return n, more
}

// deliver hands one datagram to the sink, and copies its payload to its place. It counts first: the sink completes
// operations, and the caller that waits for one may look at the counters at once.
func (g *Gather) deliver(s fabric.Sink, datagram []byte, from netip.Addr) {
	h := &g.head
	if len(datagram) < g.before || len(datagram) > g.before+g.chunk || h.Get(datagram) != nil || h.Job != g.job ||
		int(h.Root) >= g.size ||
		int(h.Root) == g.rank || foreign(from, g.sources[h.Root]) {
		g.CountDropped(1)
		return
	}
	payload := datagram[g.before:]
	if g.seals != nil && !g.seals.Open(uint32(h.Root), h.Seq, datagram[:g.before], payload) {
		g.CountForged(1)
		return
	}
	g.CountReceived(1, len(datagram))
	to, verdict, stream := s.Accept(h, len(payload))
	if verdict != fabric.Take {
		g.CountDropped(1)
		return
	}
	if stream {
		streamcopy.Copy(to, payload)
	} else {
		copy(to, payload)
	}
	s.Received(h)
}

// Sleep implements fabric.Sleeper.
func (g *Gather) Sleep(d time.Duration) {
	if !g.arm() {
		d = 0
	}
	g.Edges.Sleep(d)
}

// arm has the poller told of the next completion, and reports whether there is none that waits already.
func (g *Gather) arm() bool {
	if g.Failed() {
		return true // nothing more completes; Edges tell
	}
	err := g.port.queue.Arm(g.awaited > 0)
	g.Note(err)
	idle := g.pulls.arm()
	came, err := g.port.look()
	g.Note(err)
	if g.awaited > 0 {
		if g.Unsent(); g.port.sent >= g.awaited {
			g.awaited = 0
			return false
		}
	}
	return idle && !came && !g.Failed()
}

// Rest implements fabric.Rester.
func (g *Gather) Rest(awake func()) bool { return g.awaited == 0 && g.arm() && g.Edges.Rest(awake) }

// Close leaves the group and closes the control connections, after a last Flush, as udp.Gather does.
func (g *Gather) Close() error {
	if g.port == nil {
		return nil
	}
	g.Flush()
	err := errors.Join(g.pulls.close(), g.port.close(), g.End())
	g.port = nil
	return err
}
