// Package engine runs the pure protocols over fabrics: Gather drives internal/protocol/multicast over a
// fabric.Gather, Reduce drives internal/protocol/reducescatter over fabric.Streams or a fabric.Switch, Exchange
// drives internal/protocol/exchange. All are workers of a pkg/overlap lane. It reads the clock for the protocols,
// which have none; what fabrics do with a clock, such as a look for stalled connections, is their own.
//
// The words are in docs/reference/glossary.md.
package engine

import (
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Clock tells the moment, as the protocols take it: how long ago a start was that it chooses. Any
// goroutine may call it. A simulator gives engines its virtual time.
type Clock func() time.Duration

// NewClock returns the Clock of an engine that is given none: the machine's monotonic clock. It begins
// with the engine, not with the process, for inside a testing/synctest bubble time is another one.
func NewClock() Clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Work is an operation in flight. It is done once Done is closed; Err and
// Account are valid from then on.
type Work struct {
	done chan struct{}
	over atomic.Bool // err is set
	err  error
	// After, if set, is called once, by the goroutine that completes the
	// work. It must not block.
	after    func()
	hook     func(err error)
	hooked   atomic.Int32 // the state of hook, see OnDone
	watch    overlap.Watch
	progress trace.Progress       // by the engine's clock
	book     atomic.Pointer[Book] // gets the account of a success
	// switched says of a reduction that it went through the switch.
	switched bool
}

// The states of a work's hook: there is none yet, there is one, it is too late for one.
const (
	noHook = iota
	withHook
	pastHook
)

// newWork returns a work that is posted at a moment.
func newWork(at time.Duration, after func()) *Work {
	w := &Work{done: make(chan struct{}), after: after, progress: trace.Progress{Posted: at}}
	w.watch.Start(at)
	return w
}

// Done is closed when the operation is done, well or not.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err returns the outcome of an operation that is done.
func (w *Work) Err() error { return w.err }

// OnDone has f called with the outcome when the operation is done, before Done is closed, by the
// goroutine that completes it; if it is done already, here and now. f must not block, nor wait for
// anything of the same communicator. It may be called once.
func (w *Work) OnDone(f func(err error)) {
	w.hook = f
	if !w.hooked.CompareAndSwap(noHook, withHook) {
		f(w.err)
	}
}

// Switched reports whether a reduction that is done went through the switch.
func (w *Work) Switched() bool { return w.switched }

// Account returns how long the operation waited for what.
func (w *Work) Account() overlap.Account { return w.progress.Account }

// closed is the book of works that are done.
var closed Book

// Book adds the account to a book once the operation is done, and well. It may be called once.
func (w *Work) Book(b *Book) {
	if !w.book.CompareAndSwap(nil, b) && w.succeeded() {
		b.add(w.progress.Account)
	}
}

// enter says that the operation has come to a phase, and returns how long it was in the one before, and whether it
// was in this one never yet.
func (w *Work) enter(p overlap.Phase, at time.Duration) (passed time.Duration, first bool) {
	return w.watch.Enter(p, at), w.progress.Enter(p, at)
}

// stop books the last phase.
func (w *Work) stop(at time.Duration, err error) { w.progress.End(err == nil, w.watch.Stop(at), at) }

// end tells everybody that the work is done. Its account is written already.
func (w *Work) end(err error) {
	w.err = err
	w.over.Store(true)
	if b := w.book.Swap(&closed); b != nil && err == nil {
		b.add(w.progress.Account)
	}
	if w.after != nil {
		w.after()
	}
	if w.hooked.Swap(pastHook) == withHook {
		w.hook(err)
	}
	close(w.done)
}

// lets reports whether the work after w may begin: w is done and well, or there is none.
func (w *Work) lets() bool { return w == nil || w.succeeded() }

// succeeded reports whether the operation is done and well.
func (w *Work) succeeded() bool { return w.over.Load() && w.err == nil }
