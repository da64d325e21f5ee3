package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// ReduceOp is an operation for the reduce lane.
type ReduceOp struct {
	direct.Op
	// After, if not nil, must be done, and well, before the operation begins; those
	// posted later stay behind it. It fails only with the whole group. Who completes it nudges the lane.
	After *Work
}

func (o *ReduceOp) mayBegin() bool { return o.After.lets() }

// traced says what the operation is.
func (o *ReduceOp) traced() trace.Operation {
	if root, one := o.To.Root(); one {
		return trace.Operation{Name: "reduce", Bytes: o.Bytes(), Root: root}
	}
	return trace.Operation{Name: "reduce-scatter", Bytes: o.Bytes(), Root: -1}
}

// ReduceConfig says how a Reduce engine is set up.
type ReduceConfig struct {
	Rank, Size int
	// Route decides how operations go: it has Begin called first, and then Stop, Resume and Join as switches come and go.
	// It runs on a goroutine of its own from the first operation on, since a communicator that never reduces needs no
	// connections for reductions, and returns when the communicator ends. nil: the engine's driver decides.
	Route func()
	// Priority is this group's. A SwitchConn has it from the engine.
	Priority Priority
	// Link is what this host sends by; nil: nobody shares it. A SwitchConn gets it by itself.
	Link fabric.Link
	// Broken is called once, when the lane cannot go on; it brings about a call of Fail.
	Broken func(err error)
	Clock  Clock // nil: the machine's
	// Trace remembers the operations; nil: nothing does.
	Trace *trace.Lane
}

// Reduce drives the Reduce-Scatter of one rank. It implements overlap.Worker. Operations come in by its
// inbox: Submit, SubmitAll and Fail are there.
type Reduce struct {
	inbox[ReduceOp]
	cfg      ReduceConfig
	lane     *reducescatter.Lane
	works    [maxTracked]*Work // by number
	orders   chan *order
	failed   bool
	reported bool          // Broken was called
	woken    chan struct{} // ends a Sleep while there is nothing else to sleep on
	rest     rest
	claimed  time.Duration // when the link was last claimed
	priority priority
	watched  watched
	resent   uint64                                   // contributions that the trace knows of
	moved    uint64                                   // reducescatter.Waiting.Moved when somebody last asked
	movedAt  time.Duration                            // ... and since when
	awaited  []struct{ begin, input atomic.Duration } // by rank

	start   sync.Once // Route is started, or never will be
	ended   sync.WaitGroup
	streams atomic.Pointer[streamsBox]
	conn    connBox

	switched atomic.Bool
	counted  counters[reducescatter.Stats]
}

type streamsBox struct{ fabric.Streams }

// order is a function that Route has the driver call between two rounds.
type order struct {
	do    func()
	done  chan struct{}
	state atomic.Int32
}

// The states of an order. The driver and the caller of Do both want to change the first.
const (
	pending int32 = iota
	taken
	withdrawn
)

// NewReduce returns an engine that takes operations, and begins them once Route calls Begin.
func NewReduce(cfg ReduceConfig) *Reduce {
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	r := &Reduce{cfg: cfg, lane: reducescatter.New(cfg.Rank, cfg.Size), orders: make(chan *order, 1),
		woken:   make(chan struct{}, 1),
		awaited: make([]struct{ begin, input atomic.Duration }, cfg.Size)}
	r.priority = cfg.Priority.open()
	r.clock, r.wake, r.traced, r.describe = cfg.Clock, r.Wake, cfg.Trace, (*ReduceOp).traced
	r.added = func() {
		if cfg.Route != nil {
			r.start.Do(func() { r.ended.Go(cfg.Route) })
		}
		r.rest.wake()
	}
	return r
}

// Do has the engine's driver call f between two rounds, and waits for that. If ctx ends before, f is not called: then,
// and only then, there is an error.
func (r *Reduce) Do(ctx context.Context, f func()) error {
	o := &order{do: f, done: make(chan struct{})}
	select {
	case r.orders <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.Wake()
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(pending, withdrawn) {
		return context.Cause(ctx)
	}
	<-o.done
	return nil
}

// Begin lets operations go: through c, if all ranks have joined the switch under this epoch, else over the streams s.
// The other one is nil. Only the engine's driver may call Begin, Stop, Resume and Join: see Do.
func (r *Reduce) Begin(epoch uint32, c *reducescatter.SwitchConn, s fabric.Streams) {
	if c == nil {
		r.open(s)
	} else {
		c.Pace(r.priority.background)
		r.conn.set(c)
	}
	r.lane.Begin(epoch, c)
}

// Join says that this rank has joined the switch again.
func (r *Reduce) Join(c *reducescatter.SwitchConn) {
	c.Pace(r.priority.background)
	r.conn.set(c)
	r.lane.Join(c)
}

// Stop leaves the switch, if this rank had joined it under that epoch, and returns the record for
// Resume and the connection, or nil, for the caller to close.
func (r *Reduce) Stop(epoch uint32) (record []byte, c *reducescatter.SwitchConn) {
	return r.lane.Stop(epoch), r.conn.set(nil)
}

// Resume goes on without the switch, over s, given all ranks' records. s counts only the first
// time.
func (r *Reduce) Resume(records [][]byte, s fabric.Streams) error {
	r.open(s)
	return r.lane.Resume(records)
}

func (r *Reduce) open(s fabric.Streams) {
	if !r.lane.Opened() {
		r.streams.Store(&streamsBox{s})
		r.lane.Open(s)
	}
}

// Wake ends a Sleep.
func (r *Reduce) Wake() {
	if s := r.streams.Load(); s != nil {
		s.Wake()
	}
	if c := r.conn.Load(); c != nil {
		c.Wake()
	}
	r.rest.wake()
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Deadline returns when Work is to be called, unless something comes before.
func (r *Reduce) Deadline() (time.Duration, bool) {
	at, ok := r.priority.background.Deadline()
	if c := r.conn.Load(); c != nil {
		look, waits := c.Deadline()
		return sooner(at, ok, look, waits)
	}
	return at, ok
}

// both is how long the streams are slept on while the switch is in use as well,
// for a moment at a change from one to the other.
const both = time.Millisecond

// Sleep waits for news on the streams and the switch connection, as far as they are in use.
func (r *Reduce) Sleep(most time.Duration) {
	s, c := r.streams.Load(), r.conn.Load()
	if at, waits := r.priority.background.Deadline(); waits {
		if most = min(most, at-r.clock()); most <= 0 {
			return
		}
	}
	switch {
	case r.failed || r.lane.Err() != nil || s == nil && c == nil:
		select {
		case <-r.woken:
		case <-time.After(most):
		}
		return
	case len(r.orders) > 0 || !r.empty() && r.lane.Room() > 0 && r.ready((*ReduceOp).mayBegin):
		return
	}
	if s != nil {
		if r.lane.Check(); r.lane.Err() != nil {
			return
		}
	}
	switch {
	case c == nil:
		s.Sleep(most)
	case s == nil || !r.lane.Directly():
		c.Sleep(r.clock(), most)
	default:
		if _, waits := c.Deadline(); waits {
			most = min(most, both)
		}
		if most = c.Patience(r.clock(), most); most > 0 {
			s.Sleep(most)
		}
	}
}

// Work does one round: operations in, bytes in and summed, bytes out.
func (r *Reduce) Work() bool {
	if r.checkFault() {
		return false
	}
	r.priority.background.Round()
	busy := r.runOrder()
	busy = r.post() || busy
	r.claim()
	if c := r.conn.Load(); c != nil {
		busy = c.Work(r.clock()) || busy
	}
	busy = r.direct() || busy
	if busy {
		r.reportMoved()
		r.remember()
	}
	busy = r.finish() || busy
	r.book(busy)
	if len(r.untraced) > 0 {
		r.keep(busy, r.clock())
	}
	if r.watched.asked.Load() {
		r.watched.publish(r.waiting())
	}
	return busy
}

// remember has the trace know of contributions that were sent again.
func (r *Reduce) remember() {
	c := r.conn.Load()
	if r.cfg.Trace == nil || c == nil {
		return
	}
	now := c.Stats().Resent
	r.cfg.Trace.Repaired(now-min(r.resent, now), r.clock())
	r.resent = now // of another connection it begins anew
}

// claimFor is for how long a Reduce-Scatter that moves is taken to be in flight, claimAgain how often
// it says so.
const (
	claimFor   = 50 * time.Millisecond
	claimAgain = 10 * time.Millisecond
)

// claim tells the link that reductions are in flight. A reduction that only waits for its turn leaves the link to
// others, and a group in the background leaves it to the foreground.
func (r *Reduce) claim() {
	if r.cfg.Link == nil || r.cfg.Priority.Background || r.InFlight() <= r.queued() {
		return
	}
	if now := r.clock(); r.claimed == 0 || now >= r.claimed+claimAgain {
		r.claimed = now
		r.cfg.Link.Claim(fabric.Reductions, claimFor)
	}
}

// book notes what the oldest operation waits for.
func (r *Reduce) book(busy bool) {
	number, at := r.lane.Oldest()
	w := r.works[number%maxTracked]
	if w == nil {
		return
	}
	phase := overlap.Peers
	switch {
	case at.Whole:
		phase = overlap.Finish
	case at.Moving && at.Sending && !busy:
		phase = overlap.Turn
	case at.Moving:
		phase = overlap.Transfer
	}
	r.waitsFor(number, w, phase)
}

// waitsFor has an operation wait for something else from now on, and books the wait before that on the rank that caused
// it.
func (r *Reduce) waitsFor(number uint32, w *Work, phase overlap.Phase) {
	before := w.watch.Phase()
	if phase == before {
		return
	}
	d := r.enter(w, phase, r.clock())
	if begun, input, ok := r.lane.Latest(number); ok && !w.switched {
		switch before {
		case overlap.Peers:
			r.awaited[begun].begin.Add(d)
		case overlap.Transfer:
			r.awaited[input].input.Add(d)
		}
	}
}

// AwaitedInput is for how long a rank was waited for in Reduce-Scatters and Reduces that went directly.
type AwaitedInput struct {
	Begin time.Duration // until it had begun them, all others having done so
	Input time.Duration // until the rest of its input was there
}

// Awaited returns for how long a rank was waited for. Any goroutine may call it.
func (r *Reduce) Awaited(rank int) AwaitedInput {
	a := &r.awaited[rank]
	return AwaitedInput{a.begin.Load(), a.input.Load()}
}

// runOrder runs the order of Route that waits, if there is one.
func (r *Reduce) runOrder() bool {
	if len(r.orders) == 0 {
		return false
	}
	o := <-r.orders
	if o.state.CompareAndSwap(pending, taken) {
		o.do()
		close(o.done)
	}
	return true
}

// post hands queued operations to the lane.
func (r *Reduce) post() bool {
	r.switched.Store(r.lane.Switched())
	items := r.takeWhile(r.lane.Room(), (*ReduceOp).mayBegin)
	for i := range items {
		number := r.lane.Post(r.clock(), items[i].op.Op)
		r.works[number%maxTracked] = items[i].work
	}
	return len(items) > 0
}

// finish completes the operations that are done.
func (r *Reduce) finish() bool {
	busy := false
	for {
		before := r.lane.Stats().Switched
		number, ok := r.lane.NextDone()
		if !ok {
			return busy
		}
		busy = true
		w := r.works[number%maxTracked]
		r.works[number%maxTracked] = nil
		r.counted.store(r.lane.Stats()) // a waiting caller may look at them next
		w.switched = r.lane.Stats().Switched > before
		r.waitsFor(number, w, overlap.Finish)
		r.done(w, nil)
	}
}

// checkFault ends everything once Fail was called, or the lane failed, and
// reports whether it has.
func (r *Reduce) checkFault() bool {
	if r.failed {
		return true
	}
	err := r.fault.Load()
	if err == nil {
		if r.lane.Err() == nil {
			return false
		}
		if !r.reported {
			r.reported = true
			r.cfg.Broken(r.lane.Err())
		}
		// Fail brings the error that all ranks get.
		return true
	}
	r.failed = true
	if c := r.conn.set(nil); c != nil {
		// The switch need not wait for the end of this process to forget the rank.
		r.ended.Go(func() { _ = c.Close() })
	}
	for _, o := range r.shut(err) {
		r.done(o.work, err)
	}
	for i, w := range r.works {
		if w != nil {
			r.works[i] = nil
			r.done(w, err)
		}
	}
	return true
}

// Called is reducescatter.Lane.Called. Only who drives the engine may call it.
func (r *Reduce) Called() string { return r.lane.Called() }

// Switched reports whether the switch is what the next operation goes through.
func (r *Reduce) Switched() bool { return r.switched.Load() }

// Stats returns the counters. Any goroutine may call it.
func (r *Reduce) Stats() ReduceStats {
	s := ReduceStats{r.counted.load(), r.conn.stats()}
	if b := r.streams.Load(); b != nil {
		f := b.Stats()
		s.SentBytes += f.SentBytes
		s.ReceivedBytes += f.ReceivedBytes
	}
	return s
}

// Close waits for Route, which must be about to return, and closes the switch connection and the streams. Nobody may
// drive the engine any more.
func (r *Reduce) Close() error {
	r.start.Do(func() {}) // nobody starts Route from now on, or is about to
	r.ended.Wait()
	var errs []error
	if c := r.conn.set(nil); c != nil {
		errs = append(errs, c.Close())
	}
	if b := r.streams.Load(); b != nil {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
