package overlap

import (
	"sync"
	"time"
)

// Class is a kind of traffic with a lane of its own.
type Class int

// The classes.
const (
	Gather Class = iota // Allgather, Broadcast, Barrier: loads the receive side
	Reduce              // Reduce-Scatter: loads the send side
	classes
)

// Meter measures how long operations of each class, and of both, were in flight. It is
// touched twice an operation, never by the data path.
type Meter struct {
	mu    sync.Mutex
	count [classes]int
	since time.Time
	busy  [classes]time.Duration
	both  time.Duration
}

// Begin notes that an operation was posted.
func (m *Meter) Begin(c Class) { m.change(c, 1) }

// End notes that an operation is done.
func (m *Meter) End(c Class) { m.change(c, -1) }

func (m *Meter) change(c Class, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(time.Now())
	m.count[c] += by
}

// settle books the time since the last change.
func (m *Meter) settle(now time.Time) {
	d := now.Sub(m.since)
	m.since = now
	if m.count[Gather] > 0 {
		m.busy[Gather] += d
	}
	if m.count[Reduce] > 0 {
		m.busy[Reduce] += d
	}
	if m.count[Gather] > 0 && m.count[Reduce] > 0 {
		m.both += d
	}
}

// Times returns how long each class had an operation in flight, and how long both had.
func (m *Meter) Times() (gather, reduce, both time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(time.Now())
	return m.busy[Gather], m.busy[Reduce], m.both
}
