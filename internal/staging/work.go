package staging

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Work is an operation on device memory. It is done when its results are there, or where it has failed,
// when the streams of the group have passed it; then its memory is the caller's again.
type Work struct {
	card  *cardOf
	done  chan struct{}
	first atomic.Pointer[error] // what went wrong

	following sync.Mutex
	event     uintptr // recorded behind the results; 0 once released

	// No lock that the driver's thread takes is held while the driver is called: that may wait for the
	// thread, where a stream has no room.
	timing sync.Mutex
	late   *time.Timer // fires if it takes too long
}

// Done is closed when the operation is done, well or not.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err returns what went wrong so far, or nil. Of a work that is done it is the outcome.
func (w *Work) Err() error {
	if err := w.first.Load(); err != nil {
		return *err
	}
	return nil
}

// WaitUntil blocks until the work is done and returns its outcome, or context.DeadlineExceeded once the
// deadline, unless zero, has passed.
func (w *Work) WaitUntil(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-w.done:
		return w.Err()
	case <-late:
	}
	select {
	case <-w.done:
		return w.Err()
	default:
		return context.DeadlineExceeded
	}
}

// Follow has what is queued on a stream from now on wait for the results, and returns at once.
func (w *Work) Follow(stream uintptr) error {
	w.following.Lock()
	defer w.following.Unlock()
	if w.event == 0 {
		return nil // released: nobody asks any more
	}
	return w.card.Wait(stream, w.event)
}

// Release says that Follow will not be called any more.
func (w *Work) Release() {
	w.following.Lock()
	defer w.following.Unlock()
	if w.event != 0 {
		putEvent(w.card.Card, w.event)
		w.event = 0
	}
}

// fail keeps the first error.
func (w *Work) fail(err error) { w.first.CompareAndSwap(nil, &err) }

// began says that the input of the first piece is there: from now on the operation takes time.
func (w *Work) began(limit time.Duration, late func()) {
	w.timing.Lock()
	defer w.timing.Unlock()
	if w.late == nil && limit > 0 {
		w.late = time.AfterFunc(limit, func() {
			select {
			case <-w.done:
			default:
				late()
			}
		})
	}
}

// arrived says that the streams have passed the operation.
func (w *Work) arrived() {
	w.timing.Lock()
	defer w.timing.Unlock()
	if w.late != nil {
		w.late.Stop()
	}
	close(w.done)
}
