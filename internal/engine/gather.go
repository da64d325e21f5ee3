package engine

import (
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/streamcopy"
)

// maxTracked is the number of operations for which an engine remembers the buffers. It exceeds collective.MaxInFlight,
// so no place is used again too early.
const maxTracked = 2 * collective.MaxInFlight

// pollBudget bounds the chunks taken in one round, so that sending, repairs
// and timers have their turn.
const pollBudget = 64

// GatherConfig says how a Gather engine is set up.
type GatherConfig struct {
	Core   multicast.Config
	Job    uint64
	Fabric fabric.Gather
	Clock  Clock // nil: the machine's
	// Trace remembers the operations; nil: nothing does.
	Trace *trace.Lane
	// Broken is called when the path to a rank is lost or, with rank -1, when
	// the protocol cannot go on; it brings about a call of Fail.
	Broken func(rank int, err error)
	// Link is what this host sends by; nil: nobody shares it.
	Link     fabric.Link
	Priority Priority // of this group
	Relay    bool     // see Gather.Relay
	// Shared, if not nil, says whether a reduction shares the links, see multicast.Comm.Share.
	Shared func() bool
}

// Gather drives the multicast protocol of one rank. It implements overlap.Worker and fabric.Sink.
// Operations come in by its inbox: Submit, SubmitAll and Fail are there.
type Gather struct {
	// Fields that every round reads stand together: a simulator with a thousand engines finds none of them in a cache.
	comm     *multicast.Comm
	fab      fabric.Gather
	now      multicast.Time
	failed   bool
	reported bool           // Broken was called for the protocol's error
	blocked  bool           // the fabric had no room for what could be sent
	overdue  multicast.Time // when a silence was found that counts as loss unless more is there; 0: none
	shared   func() bool    // GatherConfig's
	claim    fabric.Claimant
	wait     fabric.Wait // for contributions that precede the multicast
	priority priority
	carried  uint64         // bytes multicast and received
	began    multicast.Time // when the last Broadcast from here was begun
	took     multicast.Time // for how long the one before was sent
	last     multicast.Time // when something was multicast by all ranks together
	delayed  []delayed
	lent     []lent // done but for their input
	counted  counters[multicast.Stats]
	repaired uint64                        // chunks that the trace knows of
	awaited  []counters[multicast.Awaited] // by rank
	inbox[GatherOp]
	cfg GatherConfig

	front    uint32 // the oldest operation that is not done
	arenas   [2][]byte
	orphaned []*Work       // operations that came after the protocol had failed
	woken    chan struct{} // ends a Sleep of an engine that has failed
	rest     rest
	watched  watched

	// Arguments of interface calls, kept here so that they do not escape to
	// the heap on every chunk.
	run     fabric.Run
	message wire.Control
	chunk   multicast.Repair
	read    wire.Read

	ops [maxTracked]gatherOp
}

// gatherOp is an operation that the protocol has.
type gatherOp struct {
	work   *Work
	moving bool           // its transfer has begun
	in     multicast.Time // when it last received something
	out    multicast.Time // when it last sent something, or could have
	GatherOp
	copied int    // bytes of the own shard that are in Recv
	lent   uint64 // of Send, see fabric.Run; 0: nothing
}

// bulk reports whether the result will not be found in a cache anyway.
func (o *gatherOp) bulk() bool { return max(len(o.Recv), o.Whole) >= streamcopy.From }

func (o *GatherOp) mayBegin() bool { return o.After.lets() }

// traced says what the operation is.
func (o *GatherOp) traced() trace.Operation {
	t := trace.Operation{Name: o.Collective.String(), Bytes: o.Bytes, Root: -1}
	if o.Collective == wire.Broadcast {
		t.Root = o.Root
	}
	return t
}

// NewGather returns an engine over a fabric.
func NewGather(cfg GatherConfig) *Gather {
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	g := &Gather{
		cfg: cfg, comm: multicast.New(cfg.Core), fab: cfg.Fabric, shared: cfg.Shared,
		claim: fabric.Claimant{Link: cfg.Link, What: fabric.Multicast}, wait: fabric.Wait{Link: cfg.Link, For: fabric.Behind},
		arenas: [2][]byte{make([]byte, cfg.Core.Arena), make([]byte, cfg.Core.Arena)}, front: cfg.Core.First,
		woken:   make(chan struct{}, 1),
		awaited: make([]counters[multicast.Awaited], cfg.Core.Size),
	}
	g.priority = cfg.Priority.open()
	g.comm.Relay(cfg.Relay)
	g.counted.store(g.comm.Stats()) // the statistics before the first operation
	g.clock, g.wake, g.added = cfg.Clock, g.Wake, g.rest.wake
	g.traced, g.describe = cfg.Trace, (*GatherOp).traced
	return g
}

// Relay says whether this rank wants everything relayed, see multicast.Comm.Relay. Only who drives the
// engine may call it.
func (g *Gather) Relay(always bool) { g.comm.Relay(always) }

// Wake ends a Sleep.
func (g *Gather) Wake() {
	g.fab.Wake()
	g.rest.wake()
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Sleep waits for the fabric, at most until there is something to do.
func (g *Gather) Sleep(most time.Duration) {
	if g.unreported() {
		return
	}
	if g.failed || g.comm.Err() != nil {
		// Nobody takes what still arrives, and a fabric does not sleep while something is there.
		select {
		case <-g.woken:
		case <-time.After(most):
		}
		return
	}
	if at, ok := g.Deadline(); ok {
		most = min(most, at-g.clock())
	}
	if most > 0 {
		g.fab.Sleep(most)
	}
}

// Deadline returns when Work has something to do though nothing arrives and nothing is submitted, and
// whether it ever has. That moment may have passed.
func (g *Gather) Deadline() (multicast.Time, bool) {
	if g.unreported() {
		return 0, true
	}
	if g.comm.Err() != nil {
		return 0, false // until Fail
	}
	if !g.empty() && g.comm.Room() > 0 && g.ready((*GatherOp).mayBegin) {
		return 0, true
	}
	at, ok := g.comm.Deadline()
	look, waits := g.wait.Deadline()
	at, ok = sooner(at, ok, look, waits)
	look, waits = g.priority.background.Deadline()
	return sooner(at, ok, look, waits)
}

// unreported says that the protocol has failed and that the next round calls Broken for it.
func (g *Gather) unreported() bool { return g.comm.Err() != nil && !g.reported && !g.failed }

// Work does one round: operations in, chunks in, chunks and messages out.
func (g *Gather) Work() bool {
	g.now = g.clock()
	if g.checkFault() {
		return false
	}
	busy := !g.empty() && g.post()
	polled, more := g.fab.Poll(g, pollBudget)
	busy = polled > 0 || busy
	busy = g.settle() || busy
	busy = g.expire(more) || busy
	busy = g.send() || busy
	g.fab.Flush()
	g.keep(busy, g.now)
	if g.watched.asked.Load() {
		g.watched.publish(g.waiting())
	}
	if busy {
		s := g.comm.Stats()
		g.cfg.Trace.Repaired(s.Repaired-g.repaired, g.now)
		g.repaired = s.Repaired
		g.counted.store(s)
		g.reportMoved()
	}
	return busy
}

// expire lets the protocol ask for overdue chunks. While more may wait in the fabric's queues, silence is no sign of
// loss: a rank that was kept from running for a while looks there first. That lasts for a cutoff at most, since
// strangers may fill the queues. A gap is a sign all the same, since later chunks have come.
func (g *Gather) expire(more bool) bool {
	at, ok := g.comm.Deadline()
	if !ok || at > g.now {
		g.overdue = 0
		return false
	}
	if more && g.mayLook() {
		g.comm.ExpireGaps(g.now)
		return true
	}
	g.overdue = 0
	g.comm.Expire(g.now)
	return true
}

// mayLook reports whether to look for more before silence counts as loss.
func (g *Gather) mayLook() bool {
	cutoff, ok := g.comm.Cutoff()
	switch {
	case !ok || cutoff > g.now:
		g.overdue = 0
		return true
	case g.overdue == 0:
		g.overdue = g.now
	}
	return g.now < g.overdue+g.cfg.Core.Cutoff
}

// checkFault ends everything once Fail was called, or the protocol failed, and
// reports whether it has.
func (g *Gather) checkFault() bool {
	if g.failed {
		return true
	}
	err := g.fault.Load()
	if err == nil {
		if g.comm.Err() == nil {
			return false
		}
		if !g.reported {
			g.reported = true
			g.cfg.Broken(-1, g.comm.Err())
		}
		// Fail brings the error that all ranks get.
		return true
	}
	g.failed = true
	if g.cfg.Core.Reads > 0 {
		g.fab.Withdraw() // buffers are their callers' from now on
	}
	g.comm.Fail(err)
	g.delayed = nil
	g.finish()
	for _, l := range g.lent {
		g.done(l.work, err)
	}
	g.lent = nil
	for _, o := range g.shut(err) {
		g.orphaned = append(g.orphaned, o.work)
	}
	for _, w := range g.orphaned {
		g.done(w, err)
	}
	g.orphaned = nil
	return true
}

// post hands queued operations to the protocol.
func (g *Gather) post() bool {
	items := g.takeWhile(g.comm.Room(), (*GatherOp).mayBegin)
	for i := range items {
		w := items[i].work
		o := &g.ops[g.comm.Posted()%maxTracked]
		*o = gatherOp{GatherOp: items[i].op, work: w}
		if o.Send != nil && SameMemory(o.Send, g.ownSlot(o)) {
			o.copied = len(o.Send)
		}
		if _, err := g.comm.Post(g.now, o.Op); err != nil {
			*o = gatherOp{}
			if g.comm.Err() != nil {
				g.orphaned = append(g.orphaned, w) // checkFault ends it
			} else {
				g.done(w, err)
			}
			continue
		}
		g.toFront()
		g.finish()
	}
	return len(items) > 0
}

// ownSlot is where the own shard lies in the buffer of an operation.
func (g *Gather) ownSlot(o *gatherOp) []byte { return o.Recv[o.Start(g.cfg.Core.Rank):][:o.Bytes] }

// SameMemory reports whether two buffers of equal length are the same memory.
func SameMemory(a, b []byte) bool {
	return len(a) == 0 || unsafe.SliceData(a) == unsafe.SliceData(b)
}

// Overlaps reports whether two buffers share a byte.
func Overlaps(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}

// multicast sends what the protocol has ready.
func (g *Gather) multicast() bool {
	busy := false
	g.wait.Round()
	g.priority.background.Round()
	if g.shared != nil || g.cfg.Link != nil {
		g.comm.Share(g.shares())
	}
	var r multicast.Run
	for {
		if !g.comm.NextRun(&r) {
			g.blocked = false
			return busy
		}
		o := &g.ops[r.Head.Seq%maxTracked]
		ordered := g.ordered(o)
		together := ordered && g.comm.Together(r.Head.Seq)
		if o.Collective != wire.Barrier && g.priority.background.Must(g.now) || ordered && !r.Relay && g.follows(together) {
			g.claim.Pause()
			g.yielded(o)
			return busy
		}
		g.run = fabric.Run{Head: r.Head, Count: r.Count, Shard: o.Send}
		g.run.Head.Job = g.cfg.Job
		if r.Head.Arena != multicast.NotEager {
			g.run.Shard = g.ownInArena(o, &r)
			if r.Head.PSN == 0 {
				// An eager shard is sent, and repaired, from the arena. Before now
				// the place may still have held an operation of the last epoch.
				copy(g.run.Shard, o.Send)
			}
		}
		n := r.Count
		switch {
		case r.Probe:
			if g.run.Count = 1; g.fab.Multicast(&g.run) > 0 {
				n = 1
				g.comm.Probed(r.Head.Seq)
			}
		case !r.Relay:
			g.run.Count = g.priority.background.Most(r.Count, g.cfg.Core.Chunk)
			if n = g.fab.Multicast(&g.run); n == 0 {
				g.blocked = true
				if ordered {
					g.claim.Full()
				}
				return busy
			}
			if ordered {
				g.account(o, together, int(r.Head.PSN), n)
			}
		}
		o.lent = max(o.lent, g.run.Lent)
		g.carried += uint64(n * g.cfg.Core.Chunk)
		g.priority.background.Sent(n * g.cfg.Core.Chunk)
		busy = true
		g.sent(o, r.Head.Arena == multicast.NotEager)
		if r.Head.Arena == multicast.NotEager {
			g.copyOwn(o, (int(r.Head.PSN)+n)*g.cfg.Core.Chunk)
		}
		g.comm.Sent(r.Head.Seq, n)
		g.finish()
	}
}

// copyOwn puts the own shard, up to a byte, into its slot of Recv. Doing so
// right after a chunk was sent finds it in the cache.
func (g *Gather) copyOwn(o *gatherOp, to int) {
	if to = min(to, o.Bytes); to > o.copied {
		dst, src := g.ownSlot(o)[o.copied:to], o.Send[o.copied:to]
		if o.bulk() {
			streamcopy.Copy(dst, src)
		} else {
			copy(dst, src)
		}
		o.copied = to
	}
}

// held returns the bytes of a chunk that this rank holds.
func (g *Gather) held(r *multicast.Repair) []byte { return g.holds(r, int(r.Message.Bytes)) }

// holds returns n bytes that this rank holds, from a chunk on.
func (g *Gather) holds(r *multicast.Repair, n int) []byte {
	if r.Place.Arena {
		return g.arena(r.Place.Second)[r.Place.Offset : r.Place.Offset+n]
	}
	o := &g.ops[r.Place.Seq%maxTracked]
	if int(r.Message.Root) == g.cfg.Core.Rank {
		return o.Send[int(r.Message.PSN)*g.cfg.Core.Chunk:][:n]
	}
	return o.Recv[r.Place.Offset : r.Place.Offset+n]
}

// finish completes the operations that the protocol says are done. It runs right after every step that may complete
// one, because the next chunk may belong where an eager result still lies.
func (g *Gather) finish() {
	if g.comm.AnyDone() { // as after few chunks
		g.complete()
	}
}

func (g *Gather) complete() {
	if g.comm.Err() != nil && !g.failed {
		return // checkFault finishes the rest, with the right error
	}
	for {
		d, ok := g.comm.NextDone()
		if !ok {
			return
		}
		o := &g.ops[d.Seq%maxTracked]
		w := o.work
		if d.Err == nil {
			if d.Arena != multicast.NotEager {
				g.unpack(o, g.arena(d.Second)[d.Arena:])
			} else if o.Send != nil {
				g.copyOwn(o, o.Bytes)
			}
		}
		g.moved(o)
		until := o.lent
		*o = gatherOp{}
		g.toFront()
		g.counted.store(g.comm.Stats()) // a waiting caller may look at them next
		for r, a := range g.comm.Awaited() {
			g.awaited[r].store(a)
		}
		if d.Err != nil {
			d.Err = g.fault.Load()
		}
		if d.Err == nil && until > 0 && !g.fab.Returned(until) {
			g.lent = append(g.lent, lent{w, until})
			continue
		}
		g.done(w, d.Err)
	}
}

// Stats returns the protocol's and the fabric's counters. Any goroutine may call it.
func (g *Gather) Stats() (multicast.Stats, fabric.Stats) { return g.counted.load(), g.fab.Stats() }

// Awaited returns for how long a rank was waited for in operations that are done. Any goroutine may call it.
func (g *Gather) Awaited(rank int) multicast.Awaited { return g.awaited[rank].load() }

// Close closes the fabric. Nobody may drive the engine any more.
func (g *Gather) Close() error { return g.fab.Close() }
