package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/exchange"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// ExchangeOp is an operation for the exchange lane: one send or receive, or all transfers of a collective.
type ExchangeOp struct {
	Of        wire.Exchange
	Transfers []*exchange.Transfer
	Name      string // in traces; it lives as long as the process
	Bytes     int    // this rank sends or receives, likewise
}

// ExchangeConfig says how an Exchange engine is set up.
type ExchangeConfig struct {
	Rank, Size int
	// Connect is called once, on a goroutine of its own, with the first operation. It brings about a call of Open.
	Connect func()
	// Broken is called once, when the lane cannot go on; it brings about a call of Fail.
	Broken func(err error)
	Clock  Clock // nil: the machine's
	// Trace remembers the operations; nil: nothing does.
	Trace *trace.Lane
}

// Exchange moves messages from rank to rank. It implements overlap.Worker. Operations come in by its inbox: SubmitSteps
// and Fail are there.
type Exchange struct {
	inbox[ExchangeOp]
	cfg      ExchangeConfig
	comm     *exchange.Comm
	calls    map[*exchangeCall]struct{} // in flight
	posts    uint32
	watched  watched
	moved    time.Duration // when anything last moved
	failed   bool
	reported bool          // Broken was called
	woken    chan struct{} // ends a Sleep before there are streams
	rest     rest
	leave    atomic.Bool // Leave was called

	connect sync.Once      // Connect was called, or never will be
	ended   sync.WaitGroup // of it
	streams atomic.Pointer[streamsBox]
	begun   bool          // these are in use
	reader  fabric.Reader // the streams, or nil
	puller  fabric.Puller // the streams, or nil
	lent    atomic.Uint64 // exchange.Comm.LentBytes
}

// exchangeCall is an operation in flight.
type exchangeCall struct {
	work      *Work
	transfers []*exchange.Transfer
	number    uint32
	left      int // transfers that are not done
}

// NewExchange returns an engine that takes operations, and begins to move bytes once Open is called.
func NewExchange(cfg ExchangeConfig) *Exchange {
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	e := &Exchange{
		cfg: cfg, comm: exchange.New(cfg.Rank, cfg.Size), calls: map[*exchangeCall]struct{}{}, woken: make(chan struct{}, 1),
	}
	e.clock, e.wake, e.traced = cfg.Clock, e.Wake, cfg.Trace
	e.describe = func(o *ExchangeOp) trace.Operation { return trace.Operation{Name: o.Name, Bytes: o.Bytes, Root: -1} }
	e.added = func() {
		e.Connect()
		e.rest.wake()
	}
	return e
}

// Connect has the streams opened, if nobody has asked for that yet. Another rank needs them, or this one.
func (e *Exchange) Connect() { e.connect.Do(func() { e.ended.Go(e.cfg.Connect) }) }

// Open gives the engine its streams, once.
func (e *Exchange) Open(s fabric.Streams) {
	e.streams.Store(&streamsBox{s})
	e.Wake()
}

// begin looks at streams that have just been opened.
func (e *Exchange) begin(s *streamsBox) {
	e.begun = true
	e.reader, _ = s.Streams.(fabric.Reader)
	e.puller, _ = s.Streams.(fabric.Puller)
	for r := range e.cfg.Size {
		if r != e.cfg.Rank && e.puller != nil && e.puller.Pulls(r) {
			e.comm.Share(r)
		}
	}
}

// Leave says farewell to the other ranks, behind what was posted.
func (e *Exchange) Leave() {
	e.leave.Store(true)
	e.Wake()
}

// Wake ends a Sleep.
func (e *Exchange) Wake() {
	if s := e.streams.Load(); s != nil {
		s.Wake()
	}
	e.rest.wake()
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// Sleep waits for news on the streams, or until there are any.
func (e *Exchange) Sleep(most time.Duration) {
	s := e.streams.Load()
	if s == nil || e.failed || e.comm.Err() != nil {
		select {
		case <-e.woken:
		case <-time.After(most):
		}
		return
	}
	if e.check(s); e.comm.Err() == nil && e.empty() {
		s.Sleep(most)
	}
}

// check looks for broken streams, when nothing else can be done. What came before is there already.
func (e *Exchange) check(s *streamsBox) {
	for r := range e.cfg.Size {
		if r == e.cfg.Rank {
			continue
		}
		if err := s.Err(r); err != nil {
			e.comm.Break(r, err)
		}
	}
}

// Work does one round: operations in, bytes in, bytes out.
func (e *Exchange) Work() bool {
	if e.checkFault() {
		return false
	}
	s := e.streams.Load()
	if s != nil && !e.begun {
		e.begin(s)
	}
	busy := e.post()
	if s != nil {
		for d := 1; d < e.cfg.Size; d++ {
			from := (e.cfg.Rank + e.cfg.Size - d) % e.cfg.Size
			busy = e.receive(s, from) || busy
			busy = e.pull(from) || busy
		}
		for d := 1; d < e.cfg.Size; d++ { // the answers to what has come, too: who waits for them drives no more
			busy = e.send(s, (e.cfg.Rank+d)%e.cfg.Size) || busy
		}
	}
	if busy = e.finish() || busy; busy {
		e.moved = e.clock()
		e.lent.Store(e.comm.LentBytes())
	}
	if e.watched.asked.Load() {
		e.watched.publish(e.waiting())
	}
	if len(e.untraced) > 0 {
		e.keep(busy, e.clock())
	}
	return busy
}

// Waiting is Gather.Waiting.
func (e *Exchange) Waiting() *Waiting { return e.watched.ask(e.Wake) }

// waiting answers Waiting.
func (e *Exchange) waiting() *Waiting {
	var oldest *exchangeCall
	for call := range e.calls {
		if oldest == nil || call.number < oldest.number {
			oldest = call
		}
	}
	if oldest == nil {
		return nil
	}
	now := e.clock()
	w := &Waiting{Seq: oldest.number, At: now, Idle: now - e.moved}
	for _, t := range oldest.transfers {
		if t.Done {
			continue
		}
		rank, why := t.Awaits()
		if w.Why == "" {
			w.What, w.Why = t.Text(), why
		}
		if rank >= 0 && !slices.Contains(w.Ranks, rank) {
			w.Ranks = append(w.Ranks, rank)
		}
	}
	slices.Sort(w.Ranks)
	return w
}

// post hands queued operations to the protocol.
func (e *Exchange) post() bool {
	items := e.takeWhile(e.queued(), func(*ExchangeOp) bool { return true })
	for i := range items {
		o := &items[i].op
		call := &exchangeCall{items[i].work, o.Transfers, e.posts, len(o.Transfers)}
		e.posts++
		for _, t := range o.Transfers {
			t.Owner = call
		}
		e.enter(call.work, overlap.Peers, e.clock())
		if o.Of == wire.SendReceive {
			for _, t := range o.Transfers {
				e.comm.Post(t)
			}
		} else {
			e.comm.Collective(o.Of, o.Transfers)
		}
		if call.left == 0 {
			e.done(call.work, nil)
		} else {
			e.calls[call] = struct{}{}
		}
	}
	if e.leave.Load() && e.empty() {
		e.comm.Leave()
	}
	return len(items) > 0
}

// turn is how many bytes go to one rank, or come from it, before the next has its turn.
const turn = 256 << 10

// receive takes what has come from a rank.
func (e *Exchange) receive(s *streamsBox, from int) (busy bool) {
	for room := turn; room > 0 && e.comm.Err() == nil; {
		n := 0
		if into := e.comm.Into(from); e.reader != nil && len(into) >= directly {
			if n = e.reader.Read(from, into); n > 0 {
				e.comm.Filled(from, n)
			}
		} else if b := s.Peek(from, room); len(b) > 0 {
			n = len(b)
			e.comm.Received(from, b)
			s.Consume(from, n)
		}
		if n == 0 {
			return busy
		}
		room -= n
		busy = true
	}
	return busy
}

// pull reads what a rank has offered from its memory.
func (e *Exchange) pull(from int) bool {
	if e.puller == nil {
		return false
	}
	address, to := e.comm.ToRead(from)
	if len(to) == 0 {
		return false
	}
	err := e.puller.Pull(from, address, to)
	if errors.Is(err, fabric.ErrWithdrawn) {
		e.comm.Break(from, err)
		return false
	}
	e.comm.Read(from, err == nil)
	return true
}

// directly is from how many bytes on a stream is read straight to where they go. Fewer come along with others.
const directly = 16 << 10

// send puts into the stream to a rank what there is room for.
func (e *Exchange) send(s *streamsBox, to int) (busy bool) {
	for room := turn; room > 0; {
		b := e.comm.Next(to)
		if len(b) == 0 {
			return busy
		}
		n := s.Send(to, b[:min(len(b), room)])
		if n == 0 {
			return busy
		}
		e.comm.Sent(to, n)
		room -= n
		busy = true
	}
	return busy
}

// finish completes the operations that are done.
func (e *Exchange) finish() (busy bool) {
	for t := e.comm.NextDone(); t != nil; t = e.comm.NextDone() {
		busy = true
		call := t.Owner.(*exchangeCall)
		if call.left--; call.left == 0 {
			delete(e.calls, call)
			e.done(call.work, nil)
		}
	}
	return busy
}

// checkFault ends everything once Fail was called, or the protocol failed, and reports whether it has.
func (e *Exchange) checkFault() bool {
	if e.failed {
		return true
	}
	err := e.fault.Load()
	if err == nil {
		if e.comm.Err() != nil && !e.reported {
			e.reported = true
			e.cfg.Broken(e.comm.Err()) // Fail brings the error that all ranks get
		}
		return e.comm.Err() != nil
	}
	e.failed = true
	if e.puller != nil {
		e.puller.Withdraw() // before the memory is the caller's again
	}
	for _, o := range e.shut(err) {
		e.done(o.work, err)
	}
	for call := range e.calls {
		e.done(call.work, err)
	}
	clear(e.calls)
	return true
}

// Rest implements overlap.Rester. What other ranks send can wait until this one has posted something.
func (e *Exchange) Rest(awake func()) bool {
	var streams fabric.Sleeper
	if s := e.streams.Load(); s != nil && !e.failed && e.comm.Err() == nil {
		for r := range e.cfg.Size {
			if r != e.cfg.Rank && e.comm.Sending(r) {
				return false
			}
		}
		streams = s.Streams
	}
	rests := e.rest.begin(streams, awake)
	// What has come before that was perhaps not heard.
	s := e.streams.Load()
	if streams != nil {
		e.check(s)
	}
	opened, leaves := s != nil && !e.begun, e.leave.Load() && !e.comm.Leaving()
	unheard := e.fault.Load() != nil || e.comm.Err() != nil && !e.reported || opened || leaves
	return rests && (e.failed || !unheard)
}

// Rouse implements overlap.Rester.
func (e *Exchange) Rouse() { e.rest.end() }

// ExchangeStats are the counters of an Exchange engine.
type ExchangeStats struct {
	Ops                      uint64 // posted
	SentBytes, ReceivedBytes uint64 // of the streams, heads included
}

// Stats returns the counters. Any goroutine may call it.
func (e *Exchange) Stats() ExchangeStats {
	s := ExchangeStats{Ops: e.Posted()}
	if b := e.streams.Load(); b != nil {
		f := b.Stats()
		s.SentBytes, s.ReceivedBytes = f.SentBytes+e.lent.Load(), f.ReceivedBytes
	}
	return s
}

// Close waits for Connect, which must be about to return, and closes the streams. Nobody may drive the engine any more.
func (e *Exchange) Close() error {
	e.connect.Do(func() {})
	e.ended.Wait()
	if b := e.streams.Load(); b != nil {
		return b.Close()
	}
	return nil
}
