package staging

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Post.
var (
	ErrClosed    = errors.New("the group is closed")
	ErrCapturing = errors.New("the current stream is recording a CUDA graph, which cannot hold an operation of the host: " +
		"run collectives outside of torch.cuda.graph")
)

// Config is what a Stage is told of its group.
type Config struct {
	Ranks int
	Open  func(ordinal int) (Card, error)
	// Err returns why the group has failed, or nil.
	Err func() error
	// Busy reports whether an error of a Starter means that it is to be tried again.
	Busy func(err error) bool
	// Broken is called when the group cannot go on: it ends all collectives, on all ranks.
	Broken func(err error)
	// Lost is called for the first operation whose results are not there; the GPU goes on without them.
	Lost func(name string, err error)
}

// At is where and when an operation on device memory takes place.
type At struct {
	Device int
	Stream uintptr // the current one of the caller
	// Limit is how long it may take from its input being there; then Broken is called. 0: for ever.
	Limit time.Duration
}

// Stats count what a Stage did.
type Stats struct {
	Ops               uint64 // operations done
	OutBytes, InBytes uint64 // copied from device memory, and to it
	Made              uint64 // what the driver was asked to make: pinned memory, streams, events
}

// Stage has the operations of a group on device memory.
type Stage struct {
	cfg   Config
	turns *turns

	posting sync.Mutex // one call at a time, whose pieces stay together
	cards   map[int]*cardOf
	closed  bool

	flying             sync.WaitGroup
	lost               sync.Once
	ops, out, in, made atomic.Uint64
}

// cardOf is a device and what the group has there.
type cardOf struct {
	Card
	rings map[Orders]*ring
	made  *atomic.Uint64
}

// NewStage returns a Stage that has nothing yet: what it needs is made with the first operation.
func NewStage(cfg Config) *Stage {
	return &Stage{cfg: cfg, turns: newTurns(), cards: map[int]*cardOf{}}
}

// Post queues an operation behind what the caller's stream has queued, and returns.
func (s *Stage) Post(at At, p Plan) (*Work, error) {
	s.posting.Lock()
	defer s.posting.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if err := s.cfg.Err(); err != nil {
		return nil, err
	}
	c, r, err := s.ring(at.Device, p.Orders)
	if err != nil {
		return nil, err
	}
	if capturing, err := c.Capturing(at.Stream); err != nil || capturing {
		return nil, errors.Join(err, map[bool]error{true: ErrCapturing}[capturing])
	}
	w := &Work{card: c, done: make(chan struct{})}
	if w.event, err = c.takeEvent(); err != nil {
		return nil, err
	}
	s.flying.Add(1)
	if err := s.queue(w, r, at, &p); err != nil {
		// The others have this operation, or parts of it are queued here: it cannot be called off.
		s.flying.Done()
		w.Release()
		s.cfg.Broken(err)
		s.turns.abandon()
		return nil, err
	}
	return w, nil
}

func (s *Stage) queue(w *Work, r *ring, at At, p *Plan) error {
	if err := r.begin(at.Stream); err != nil {
		return err
	}
	if m := p.Move; m.Size > 0 {
		if err := r.card.CopyWithin(m.To, m.From, m.Size, r.in); err != nil {
			return err
		}
	}
	late := func() {
		s.cfg.Broken(fmt.Errorf("%s of tensors on CUDA device %d was not done %v after its input was there", p.Name, at.Device, at.Limit))
	}
	for i := range p.Pieces {
		one := &p.Pieces[i]
		t := &turn{orders: p.Orders}
		s.turns.add(t)
		err := r.queue(one, func(memory []byte, ended func()) {
			if i == 0 {
				w.began(at.Limit, late)
			}
			t.start = func() bool { return s.start(w, p, one, memory, ended) }
			s.turns.opened(t)
		})
		if err != nil {
			return err
		}
	}
	if err := r.card.Record(w.event, r.in); err != nil {
		return err
	}
	return r.card.Call(r.in, func() {
		s.ops.Add(1)
		w.arrived()
		s.flying.Done()
	})
}

// start begins the collective of a piece whose input is there. It reports whether to try again.
func (s *Stage) start(w *Work, p *Plan, one *Piece, memory []byte, ended func()) (again bool) {
	s.out.Add(sum(one.Out))
	end := func(err error) {
		if err != nil {
			w.fail(err)
			s.lost.Do(func() { s.cfg.Lost(p.Name, err) })
			spoil(memory)
		}
		s.in.Add(sum(one.In))
		ended()
	}
	o, err := one.Start(memory)
	switch {
	case err != nil && s.cfg.Busy(err):
		return true
	case err != nil:
		end(err)
	default:
		o.OnDone(end)
	}
	return false
}

// spoil writes over what is no result, so that nobody takes it for one: of floats it makes NaN, of
// integers -1 or the largest.
func spoil(memory []byte) {
	for i := range memory {
		memory[i] = 0xFF
	}
}

func sum(copies []Copy) (n uint64) {
	for _, c := range copies {
		n += uint64(c.To - c.From)
	}
	return n
}

// Waits reports whether an operation of such an order has not begun, so that another one must wait for
// its turn.
func (s *Stage) Waits(orders Orders) bool { return s.turns.waits(orders) }

// InTurn has an operation of host memory begin after those on device memory that were posted before. start
// does not block; it reports whether it is to be tried again.
func (s *Stage) InTurn(orders Orders, start func() (again bool)) {
	s.turns.add(&turn{orders: orders, open: true, start: start})
}

// Stats returns the counters.
func (s *Stage) Stats() Stats {
	return Stats{Ops: s.ops.Load(), OutBytes: s.out.Load(), InBytes: s.in.Load(), Made: s.made.Load()}
}

// Shut refuses what is posted from now on, and returns a channel that is closed when all else is done.
func (s *Stage) Shut() <-chan struct{} {
	s.posting.Lock()
	s.closed = true
	s.posting.Unlock()
	done := make(chan struct{})
	go func() {
		s.flying.Wait()
		close(done)
	}()
	return done
}

// Close leaves what the stage has made to others. Everything is done, after Shut.
func (s *Stage) Close() {
	s.turns.stop()
	s.posting.Lock()
	defer s.posting.Unlock()
	for _, c := range s.cards {
		for _, r := range c.rings {
			putRing(ringKind{c.Card, slot(s.cfg.Ranks)}, r)
		}
	}
	clear(s.cards)
}

// ring returns the ring of operations of some orders on a device. Allreduces have those of Reduce-Scatters.
func (s *Stage) ring(ordinal int, orders Orders) (*cardOf, *ring, error) {
	c := s.cards[ordinal]
	if c == nil {
		card, err := s.cfg.Open(ordinal)
		if err != nil {
			return nil, nil, err
		}
		c = &cardOf{Card: card, rings: map[Orders]*ring{}, made: &s.made}
		s.cards[ordinal] = c
	}
	if orders&Reduce != 0 {
		orders = Reduce
	}
	if r := c.rings[orders]; r != nil {
		return c, r, nil
	}
	r := takeRing(ringKind{c.Card, slot(s.cfg.Ranks)})
	if r == nil {
		made, err := newRing(c.Card, slot(s.cfg.Ranks), &s.made)
		if err != nil {
			return nil, nil, err
		}
		r = made
	}
	c.rings[orders] = r
	return c, r, nil
}

func (c *cardOf) takeEvent() (uintptr, error) {
	if e := takeEvent(c.Card); e != 0 {
		return e, nil
	}
	c.made.Add(1)
	return c.NewEvent()
}
