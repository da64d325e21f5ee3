package overlap

import (
	"sync"
	"time"

	"go.uber.org/atomic"
)

// Foreground counts the operations of foreground groups that are in flight.
// Background groups, such as that of a checkpoint, send only while there are
// none, or while none of them moves: a foreground operation that waits for a
// rank leaves the network idle, and that rank may be waiting for a background
// operation of this one. Receiving, barriers, credits and repairs always go on, so
// no foreground operation waits for a background one.
//
// While no background group is registered, lanes share two counters here and no lock.
type Foreground struct {
	count    atomic.Int64
	begun    atomic.Uint64 // operations ever
	stood    atomic.Uint64 // as many had begun when none had moved for patience; 0: some moved
	yielding atomic.Int64  // background groups
	watching atomic.Bool   // there is a goroutine in watch

	mu    sync.Mutex
	lanes map[*Lane]struct{} // that have had operations and are not closed
	backs map[*Background]struct{}
}

// patience is how long foreground operations may stand still before background
// ones go on. Longer than a scheduler keeps a busy rank waiting.
const patience = 100 * time.Millisecond

// Begin notes that a foreground operation was posted on a lane.
func (f *Foreground) Begin(l *Lane) {
	if l.front.Load() == nil {
		f.meet(l)
	}
	l.ahead.Inc()
	f.begun.Inc() // something new may move
	f.count.Inc()
}

// End notes that it is done. It may overtake its Begin.
func (f *Foreground) End(l *Lane) {
	l.ahead.Dec()
	if f.count.Dec() <= 0 && f.yielding.Load() > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.release()
	}
}

// meet notes a lane, until it is closed.
func (f *Foreground) meet(l *Lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.front.Store(f)
	if isClosed(l.closed) {
		return // it may not have seen f
	}
	if f.lanes == nil {
		f.lanes = map[*Lane]struct{}{}
	}
	f.lanes[l] = struct{}{}
}

func (f *Foreground) forget(l *Lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lanes, l)
}

// InFlight returns how many foreground operations are not done.
func (f *Foreground) InFlight() int { return int(f.count.Load()) }

func (f *Foreground) idle() bool { return f.count.Load() <= 0 || f.stuck() }

// stuck reports whether operations are in flight, none has moved for patience, and none has begun
// since.
func (f *Foreground) stuck() bool {
	n := f.stood.Load()
	return n > 0 && n == f.begun.Load()
}

// release wakes those that are held back. f.mu is held.
func (f *Foreground) release() {
	for b := range f.backs {
		if b.held.Swap(false) {
			b.wake()
		}
	}
}

// watch looks whether the foreground moves, as long as somebody is held back by it.
func (f *Foreground) watch() {
	seen := map[*Lane]uint64{}
	for time.Sleep(patience); f.look(seen); time.Sleep(patience) {
	}
}

// look compares how far the lanes are with what was seen before, and reports
// whether to look again.
func (f *Foreground) look(seen map[*Lane]uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun, stuck := f.begun.Load(), true
	for l := range f.lanes {
		if l.ahead.Load() <= 0 {
			continue
		}
		rounds, known := seen[l]
		seen[l] = l.rounds.Load()
		stuck = stuck && known && rounds == seen[l]
	}
	waiting := f.stuck()
	for b := range f.backs {
		waiting = waiting || b.held.Load()
	}
	if f.count.Load() <= 0 || !waiting {
		f.stood.Store(0)
		f.watching.Store(false)
		return false
	}
	if !stuck {
		f.stood.Store(0)
		return true
	}
	f.stood.Store(begun)
	f.release()
	return true
}

// Background is a group that yields to a Foreground.
type Background struct {
	to   *Foreground
	wake func()
	held atomic.Bool // has something to send, and did not
}

// Background registers a group. wake must end the sleeps of its lanes; it must not block.
func (f *Foreground) Background(wake func()) *Background {
	b := &Background{to: f, wake: wake}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.backs == nil {
		f.backs = map[*Background]struct{}{}
	}
	f.backs[b] = struct{}{}
	f.yielding.Inc()
	return b
}

// Yield reports whether the group must not send now. It will be woken when it
// may. While there is nothing to yield to this is one atomic load.
func (b *Background) Yield() bool {
	f := b.to
	if f.idle() {
		return false
	}
	b.held.Store(true)
	if f.idle() { // whoever made it so may not have seen held
		b.held.Store(false)
		return false
	}
	if f.watching.CompareAndSwap(false, true) {
		go f.watch()
	}
	return true
}

// Close ends the registration.
func (b *Background) Close() {
	b.to.mu.Lock()
	defer b.to.mu.Unlock()
	delete(b.to.backs, b)
	b.to.yielding.Dec()
}
