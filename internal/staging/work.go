package staging

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is how an operation ends, for its waiting callers.
type outcome struct {
	done  chan struct{}
	first atomic.Pointer[error] // what went wrong
}

// Done is closed when the operation is done, well or not.
func (o *outcome) Done() <-chan struct{} { return o.done }

// Err returns what went wrong so far, or nil. Of an operation that is done it is the outcome.
func (o *outcome) Err() error {
	if err := o.first.Load(); err != nil {
		return *err
	}
	return nil
}

// WaitUntil blocks until the operation is done and returns its outcome, or context.DeadlineExceeded once the
// deadline, unless zero, has passed.
func (o *outcome) WaitUntil(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-o.done:
		return o.Err()
	case <-late:
	}
	select {
	case <-o.done: // both were there
		return o.Err()
	default:
		return context.DeadlineExceeded
	}
}

// fail keeps the first error.
func (o *outcome) fail(err error) { o.first.CompareAndSwap(nil, &err) }

// Deferred is an operation of host memory that begins in its turn.
type Deferred struct {
	outcome
	copier *Copier
	start  func() (Operation, error)
}

func (d *Deferred) begin(failed error) (again bool) {
	if failed != nil {
		d.end(failed)
		return false
	}
	return d.copier.begin(d.start, d.end)
}

func (d *Deferred) end(err error) {
	if err != nil {
		d.fail(err)
	}
	close(d.done)
}

// Work is an operation on device memory. It is done when its results are there, or where it has failed,
// when the streams of the group have passed it; then its memory is the caller's again.
type Work struct {
	outcome
	card  Card
	limit time.Duration // from the input of the first piece being there; 0: none
	late  func()        // called when it has passed

	following sync.Mutex
	event     uintptr // recorded behind the results; 0 once released

	// No lock that the driver's thread takes is held while the driver is called: that may wait for the
	// thread, where a stream has no room.
	timing sync.Mutex
	timer  *time.Timer
}

// Follow makes all that is queued on a stream from now on wait for the results, and returns at once.
func (w *Work) Follow(stream uintptr) error {
	w.following.Lock()
	defer w.following.Unlock()
	if w.event == 0 {
		return nil // released: nobody asks any more
	}
	capturing, err := w.card.Capturing(stream)
	switch {
	case err != nil:
		return err
	case capturing: // the driver would refuse the wait, and end the graph
		return ErrCapturingWait
	}
	return w.card.Wait(stream, w.event)
}

// Release says that Follow will not be called any more.
func (w *Work) Release() {
	w.following.Lock()
	defer w.following.Unlock()
	if w.event != 0 {
		putEvent(w.card, w.event)
		w.event = 0
	}
}

// began says that the input of the first piece is there: from now on the operation takes time.
func (w *Work) began() {
	w.timing.Lock()
	defer w.timing.Unlock()
	if w.limit > 0 {
		w.timer = time.AfterFunc(w.limit, func() {
			select {
			case <-w.done:
			default:
				w.late()
			}
		})
	}
}

// arrived says that the streams have passed the operation.
func (w *Work) arrived() {
	w.timing.Lock()
	defer w.timing.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	close(w.done)
}
