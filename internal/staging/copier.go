package staging

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Post, and ErrCapturingWait of Follow.
var (
	ErrClosed    = errors.New("the group is closed")
	ErrCapturing = errors.New(
		"the current stream is recording a CUDA graph, which cannot hold an operation of the host: " +
			"run collectives outside of torch.cuda.graph")
	ErrCapturingWait = errors.New(
		"the stream is recording a CUDA graph, which cannot wait for an operation that is not part of it: " +
			"wait before torch.cuda.graph")
)

// Config is what a Copier is told of its group.
type Config struct {
	Ranks int
	Open  func(ordinal int) (Card, error)
	// Err returns why the group has failed, or nil. The caller that learns of a failure calls Fail.
	Err func() error
	// Busy reports whether an error of a Starter means that it is to be tried again.
	Busy func(err error) bool
	// Broken is called when the group cannot go on: it ends all collectives, on all ranks.
	Broken func(err error)
	// Lost is called for the first operation that has no results; the GPU goes on without them.
	Lost func(name string, err error)
}

// At is where and when an operation on device memory takes place.
type At struct {
	Device int
	Stream uintptr // the current one of the caller
	// Limit is how long it may take from its input being there; then Broken is called. 0: for ever.
	Limit time.Duration
}

// Stats count what a Copier did.
type Stats struct {
	Ops               uint64 // operations done
	OutBytes, InBytes uint64 // copied from device memory, and to it
	Made              uint64 // what the driver was asked to make: pinned memory, streams, events
}

// Copier has the operations of a group on device memory.
type Copier struct {
	cfg   Config
	turns *turns

	posting sync.Mutex // one call at a time, so that its pieces stay together
	cards   map[int]*cardOf
	closed  bool

	inFlight           sync.WaitGroup
	lost               sync.Once
	ops, out, in, made atomic.Uint64
}

// cardOf is a device and what the group has there.
type cardOf struct {
	Card
	rings map[Orders]*ring
}

// NewCopier returns a Copier that has nothing yet: memory, streams and events are made with the first operation.
func NewCopier(cfg Config) *Copier {
	return &Copier{cfg: cfg, turns: newTurns(), cards: map[int]*cardOf{}}
}

// Post queues an operation behind all that the caller's stream has queued, and returns.
func (s *Copier) Post(at At, p Plan) (*Work, error) {
	s.posting.Lock()
	defer s.posting.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if err := cmp.Or(s.cfg.Err(), s.turns.failure()); err != nil {
		return nil, err
	}
	c, err := s.card(at.Device)
	if err != nil {
		return nil, err
	}
	capturing, err := c.Capturing(at.Stream)
	switch {
	case err != nil:
		return nil, err
	case capturing:
		return nil, ErrCapturing
	}
	r, err := s.ring(c, p.Orders, slotFor(p.need(), s.cfg.Ranks))
	if err != nil {
		return nil, err
	}
	w := &Work{outcome: outcome{done: make(chan struct{})}, card: c.Card, limit: at.Limit}
	w.late = func() {
		s.cfg.Broken(fmt.Errorf("%s of tensors on CUDA device %d was not done %v after its input was there", p.Name,
			at.Device, at.Limit))
	}
	if w.event, err = s.event(c); err != nil {
		return nil, err
	}
	s.inFlight.Add(1)
	r.inFlight.Add(1)
	if err := s.queue(w, r, at.Stream, &p); err != nil {
		// The other ranks have this operation, or some pieces are queued here, so it cannot be called off. Its last
		// call, which says that the streams have passed it, never comes.
		w.arrived()
		w.Release()
		s.inFlight.Done()
		s.broken(err)
		return nil, err
	}
	return w, nil
}

// queue queues all of an operation.
func (s *Copier) queue(w *Work, r *ring, stream uintptr, p *Plan) error {
	if err := r.begin(stream); err != nil {
		return err
	}
	if m := p.Move; m.Size > 0 {
		if err := r.card.CopyWithin(m.To, m.From, m.Size, r.in); err != nil {
			return err
		}
	}
	flights := make([]flight, len(p.Pieces))
	for i := range flights {
		f := &flights[i]
		*f = flight{copier: s, work: w, plan: p, piece: &p.Pieces[i], first: i == 0, turn: turn{orders: p.Orders, what: f}}
		s.turns.add(&f.turn)
		if err := r.queue(f); err != nil {
			return err
		}
	}
	if err := r.card.Record(w.event, r.in); err != nil {
		return err
	}
	return r.card.Call(r.in, func() {
		s.ops.Add(1)
		r.inFlight.Add(-1)
		w.arrived()
		s.inFlight.Done()
	})
}

// begin begins an operation of host memory and has end called with its outcome. It reports whether it is to be
// tried again.
func (s *Copier) begin(start func() (Operation, error), end func(error)) (again bool) {
	o, err := start()
	switch {
	case err == nil:
		o.OnDone(end)
	case s.cfg.Busy(err):
		return true
	default:
		end(err)
	}
	return false
}

// broken ends the group on all ranks.
func (s *Copier) broken(err error) {
	s.cfg.Broken(err)
	s.Fail(cmp.Or(s.cfg.Err(), err))
}

// Fail says that the group has failed, and why: pieces that have not begun end with that error once the GPU
// comes to them, and operations of host memory behind them end at once.
func (s *Copier) Fail(err error) { s.turns.fail(err) }

// Waits reports whether an operation of such an order has not begun, so that another one must wait for
// its turn.
func (s *Copier) Waits(orders Orders) bool { return s.turns.waits(orders) }

// InTurn has an operation of host memory begin after those on device memory that were posted before. start
// does not block.
func (s *Copier) InTurn(orders Orders, start func() (Operation, error)) *Deferred {
	d := &Deferred{outcome: outcome{done: make(chan struct{})}, copier: s, start: start}
	s.turns.add(&turn{orders: orders, open: true, what: d})
	return d
}

// Stats returns the counters.
func (s *Copier) Stats() Stats {
	return Stats{Ops: s.ops.Load(), OutBytes: s.out.Load(), InBytes: s.in.Load(), Made: s.made.Load()}
}

// Shut refuses further operations, and returns a channel that is closed when all operations posted before are
// done.
func (s *Copier) Shut() <-chan struct{} {
	s.posting.Lock()
	s.closed = true
	s.posting.Unlock()
	done := make(chan struct{})
	go func() {
		s.inFlight.Wait()
		close(done)
	}()
	return done
}

// Check asks the devices whether they work. One with an error of its own calls nobody back any more, so that
// nothing there is ever done: then the group ends, and the error is returned.
func (s *Copier) Check() error {
	s.posting.Lock()
	defer s.posting.Unlock()
	for _, c := range s.cards {
		for _, r := range c.rings {
			for _, stream := range []uintptr{r.out, r.in} {
				if stream == 0 {
					continue // its making has failed
				}
				if _, err := c.Idle(stream); err != nil {
					s.broken(err)
					return err
				}
			}
		}
	}
	return nil
}

// Close leaves the rings that the GPU has passed to other groups. An operation that the GPU has not come to
// ends with an error when it does.
func (s *Copier) Close() {
	s.turns.fail(ErrClosed)
	s.turns.ended.Wait()
	s.posting.Lock()
	defer s.posting.Unlock()
	s.closed = true
	for _, c := range s.cards {
		for _, r := range c.rings {
			if r.inFlight.Load() == 0 {
				putRing(r)
			}
		}
	}
	clear(s.cards)
}

// card returns a device.
func (s *Copier) card(ordinal int) (*cardOf, error) {
	if c := s.cards[ordinal]; c != nil {
		return c, nil
	}
	card, err := s.cfg.Open(ordinal)
	if err != nil {
		return nil, err
	}
	c := &cardOf{Card: card, rings: map[Orders]*ring{}}
	s.cards[ordinal] = c
	return c, nil
}

// ring returns the ring of operations of some orders on a device, with slots of so many bytes. Allreduces have
// those of Reduce-Scatters.
func (s *Copier) ring(c *cardOf, orders Orders, bytes int) (*ring, error) {
	if orders&Reduce != 0 {
		orders = Reduce
	}
	r := c.rings[orders]
	if r == nil {
		r = takeRing(c.Card, slots*bytes)
		c.rings[orders] = r
	}
	return r, r.ready(bytes, &s.made)
}

// event returns an event for a work.
func (s *Copier) event(c *cardOf) (uintptr, error) {
	if e := takeEvent(c.Card); e != 0 {
		return e, nil
	}
	e, err := c.NewEvent()
	if err == nil {
		s.made.Add(1)
	}
	return e, err
}
