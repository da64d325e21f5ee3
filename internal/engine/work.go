// Package engine runs the pure protocols over fabrics: Gather drives
// internal/core over a fabric.Gather, Reduce drives internal/direct over
// fabric.Streams. Both are workers of a pkg/overlap lane. This is the only place
// of the data path that reads the clock.
package engine

import (
	"errors"
	"sync"

	"go.uber.org/atomic"
)

// MaxQueued bounds how many operations may wait behind those in flight.
const MaxQueued = 1024

// ErrBusy is returned when MaxQueued operations wait already.
var ErrBusy = errors.New("1024 operations are waiting already; wait for one")

// Work is an operation in flight. It is done once Done is closed; Err is valid from then on.
type Work struct {
	done chan struct{}
	err  error
	// After, if set, is called once, by the goroutine that completes the
	// work. It must not block.
	after func()
}

func newWork(after func()) *Work { return &Work{done: make(chan struct{}), after: after} }

// Done is closed when the operation is done, well or not.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err returns the outcome of an operation that is done.
func (w *Work) Err() error { return w.err }

func (w *Work) finish(err error) {
	w.err = err
	if w.after != nil {
		w.after()
	}
	close(w.done)
}

// inbox takes operations from any goroutine for the one that drives.
type inbox[T any] struct {
	mu    sync.Mutex
	items []T
	spare []T
	err   error // set once the engine takes no more
	count atomic.Int64
}

// put queues an operation.
func (b *inbox[T]) put(v T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if len(b.items) >= MaxQueued {
		return ErrBusy
	}
	b.items = append(b.items, v)
	b.count.Inc()
	return nil
}

// take moves up to n operations to out and returns it.
func (b *inbox[T]) take(n int) []T {
	if b.count.Load() == 0 || n <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.items))
	b.spare = append(b.spare[:0], b.items[:n]...)
	rest := copy(b.items, b.items[n:])
	clear(b.items[rest:])
	b.items = b.items[:rest]
	b.count.Sub(int64(n))
	return b.spare
}

// shut refuses everything from now on with err and returns what was queued.
func (b *inbox[T]) shut(err error) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	out := b.items
	b.items = nil
	b.count.Store(0)
	return out
}
