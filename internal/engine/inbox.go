package engine

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// MaxQueued bounds how many operations may wait behind those in flight. Where none
// waits, one call may post more.
const MaxQueued = 1024

// ErrBusy is returned when MaxQueued operations wait already.
var ErrBusy = errors.New("1024 operations are waiting already; wait for one")

// inbox takes operations, and the error that ends all of them, from any goroutine for the one that
// drives an engine. It counts operations until they are done.
type inbox[T any] struct {
	fault    atomic.Error // of Fail
	count    atomic.Int64 // of items
	inFlight atomic.Int64
	clock    Clock
	wake     func() // ends a Sleep of the engine
	added    func() // if not nil, called after operations were queued
	// traced remembers operations, in the words of describe; nil: nothing does.
	traced   *trace.Lane
	describe func(o *T) trace.Operation
	// untraced are operations in flight that traced knows in an earlier phase; it knew all at keptAt. Only the engine's
	// driver uses these two fields.
	untraced []*Work
	keptAt   time.Duration

	mu     sync.Mutex
	items  []queued[T]
	room   []queued[T] // none of them: memory that items lie in again once all were taken
	spare  []queued[T]
	err    error // set once the engine takes no more
	posted atomic.Uint64
}

// queued is an operation and what its caller waits for.
type queued[T any] struct {
	op   T
	work *Work
}

// Submit queues an operation with arguments that are checked. after, if not nil, is called when the operation is done.
// The caller tells the lane, or drives it.
func (b *inbox[T]) Submit(o T, after func()) (*Work, error) {
	w := newWork(b.clock(), after)
	return w, b.queue(MaxQueued, queued[T]{o, w})
}

// SubmitAll queues operations that belong together: all or, with an error, none. after is
// called once for each when it is done.
func (b *inbox[T]) SubmitAll(ops []T, after func()) ([]*Work, error) {
	return b.submitAll(MaxQueued, ops, after)
}

// SubmitSteps is SubmitAll of steps of a call that goes to several lanes, or to one in several times. The caller has
// looked for room for all of the steps (InFlight) before it posts the first one: none is refused for want of room.
func (b *inbox[T]) SubmitSteps(ops []T, after func()) ([]*Work, error) {
	return b.submitAll(math.MaxInt, ops, after)
}

func (b *inbox[T]) submitAll(most int, ops []T, after func()) ([]*Work, error) {
	works, items := make([]*Work, len(ops)), make([]queued[T], len(ops))
	for i, o := range ops {
		works[i] = newWork(b.clock(), after)
		items[i] = queued[T]{o, works[i]}
	}
	return works, b.queue(most, items...)
}

// Fail ends all operations, now and later, with err. Any goroutine may call it.
func (b *inbox[T]) Fail(err error) {
	if b.fault.CompareAndSwap(nil, err) {
		b.wake()
	}
}

// InFlight returns how many operations are not done.
func (b *inbox[T]) InFlight() int { return int(b.inFlight.Load()) }

// Posted returns how many operations were taken up.
func (b *inbox[T]) Posted() uint64 { return b.posted.Load() }

// queue takes operations, so that most wait, or more of one call: all or, with an error, none.
func (b *inbox[T]) queue(most int, items ...queued[T]) error {
	if err := b.add(most, items); err != nil {
		return err
	}
	if b.added != nil {
		b.added()
	}
	return nil
}

func (b *inbox[T]) add(most int, items []queued[T]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	switch waiting := len(b.items); {
	case waiting > 0 && waiting > most-len(items):
		return ErrBusy
	case waiting == 0:
		b.items = b.room
	}
	if b.items = append(b.items, items...); cap(b.items) > cap(b.room) {
		b.room = b.items[:0]
	}
	if b.traced != nil {
		for i := len(b.items) - len(items); i < len(b.items); i++ { // where they lie now: none goes to the heap for this
			p := &b.items[i].work.progress
			p.Operation = b.describe(&b.items[i].op)
			b.traced.Keep(p)
		}
	}
	b.count.Add(int64(len(items))) // first, so that no more fly than are queued before one is taken
	b.inFlight.Add(int64(len(items)))
	b.posted.Add(uint64(len(items)))
	return nil
}

// empty reports whether nothing is queued.
func (b *inbox[T]) empty() bool { return b.count.Load() == 0 }

// queued returns how many operations are queued.
func (b *inbox[T]) queued() int { return int(b.count.Load()) }

// takeWhile returns up to n operations, those before the first one that may not go yet, and removes
// them. They are valid until the next call.
func (b *inbox[T]) takeWhile(n int, may func(*T) bool) []queued[T] {
	if b.empty() || n <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.items))
	for i := range n {
		if !may(&b.items[i].op) {
			n = i
			break
		}
	}
	b.spare = append(b.spare[:0], b.items[:n]...)
	clear(b.items[:n])
	b.items = b.items[n:]
	b.count.Sub(int64(n))
	return b.spare
}

// ready reports whether takeWhile would return anything.
func (b *inbox[T]) ready(may func(*T) bool) bool {
	if b.empty() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items) > 0 && may(&b.items[0].op)
}

// shut refuses all operations from now on with err and returns the ones that were queued.
func (b *inbox[T]) shut(err error) []queued[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	out := b.items
	b.items, b.untraced = nil, nil
	b.count.Store(0)
	return out
}

// enter says that an operation has come to a phase, and returns how long it was in the one before.
func (b *inbox[T]) enter(w *Work, p overlap.Phase, at time.Duration) (passed time.Duration) {
	passed, first := w.enter(p, at)
	if first && b.traced != nil && !slices.Contains(b.untraced, w) {
		b.untraced = append(b.untraced, w)
	}
	return passed
}

// keepAgain is how often the trace learns of new phases while there is no end of things to do.
const keepAgain = time.Millisecond

// keep has the trace know of new phases, after a round in which something was done or not. That is left for a round
// with nothing to do, which most short operations end before: it costs a lock, and each operation has several phases.
func (b *inbox[T]) keep(busy bool, now time.Duration) {
	if len(b.untraced) == 0 || busy && now < b.keptAt+keepAgain {
		return
	}
	b.keptAt = now
	for _, w := range b.untraced {
		b.traced.Keep(&w.progress)
	}
	clear(b.untraced)
	b.untraced = b.untraced[:0]
}

// done ends an operation, which is in flight no more.
func (b *inbox[T]) done(w *Work, err error) {
	b.inFlight.Dec()
	w.stop(b.clock(), err)
	b.traced.Keep(&w.progress)
	if i := slices.Index(b.untraced, w); i >= 0 { // of a few
		b.untraced = slices.Delete(b.untraced, i, i+1)
	}
	w.end(err)
}
