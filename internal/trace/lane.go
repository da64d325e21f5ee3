// Package trace keeps what the lanes of this process have done last, in memory that does not grow, and writes it
// in the form that Perfetto and chrome://tracing show, on the clock of torch.profiler's traces.
package trace

import (
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

const (
	// kept is how many operations of a lane are remembered, the newest.
	kept = 512
	// keptNotes is how many repairs and waits of a lane are.
	keptNotes = 64
	// together is how far apart repairs of one note are at most.
	together = time.Millisecond
)

// Operation is what a lane is asked for.
type Operation struct {
	Name  string // one that lives as long as the process: nothing is allocated for it
	Bytes int    // of a shard
	Root  int    // -1: there is none
}

// moments are when an operation of a lane was where, by the lane's clock.
type moments struct {
	Operation
	number  uint64 // of the lane's operations; they are numbered from 1, and 0 is none
	entered [overlap.Finish + 1]time.Duration
	passed  uint8 // bit p: it has entered Phase p
	ended   time.Duration
	outcome outcome
	account overlap.Account
}

type outcome uint8

const (
	inFlight outcome = iota
	done
	failed
)

// String names it.
func (o outcome) String() string { return [...]string{"in flight", "done", "failed"}[o] }

// note is something that is not of one operation: chunks that came by repair, or a wait.
type note struct {
	from, to time.Duration
	repaired uint64 // 0: it is a wait
	wait     Wait
}

// Wait says that a lane does not move.
type Wait struct {
	For       string // whom
	Operation string
	Why       string
}

// Lane is the memory of one lane. A nil one remembers nothing. Any goroutine may use it; each method takes a lock
// that is held for a few instructions, once an operation or a phase of it, never for a chunk.
type Lane struct {
	name  string
	mu    sync.Mutex
	last  uint64 // operation that was posted
	ops   [kept]moments
	noted uint64
	notes [keptNotes]note
}

// NewLane returns an empty memory of a lane that has a name.
func NewLane(name string) *Lane { return &Lane{name: name} }

// Post notes an operation that is posted, and returns its number.
func (l *Lane) Post(o Operation, at time.Duration) (number uint64) {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	m := &l.ops[l.last%kept]
	*m = moments{Operation: o, number: l.last, passed: 1 << overlap.Queued}
	m.entered[overlap.Queued] = at
	return l.last
}

// Enter notes that an operation has come to a phase. Only the first time counts: Turn and Transfer alternate with
// each batch, and the account at the end says how long both were.
func (l *Lane) Enter(number uint64, p overlap.Phase, at time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := &l.ops[number%kept]; m.number == number && m.passed>>p == 0 {
		m.passed |= 1 << p
		m.entered[p] = at
	}
}

// End notes that an operation is done, or has failed.
func (l *Lane) End(number uint64, well bool, a overlap.Account, at time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.ops[number%kept]
	if m.number != number {
		return // longer ago than what is kept
	}
	m.ended, m.account, m.outcome = at, a, failed
	if well {
		m.outcome = done
	}
}

// Repaired notes chunks that came by repair, or contributions that were sent again.
func (l *Lane) Repaired(n uint64, at time.Duration) {
	if l == nil || n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := &l.notes[l.noted%keptNotes]; l.noted > 0 && m.repaired > 0 && at-m.to <= together {
		m.to, m.repaired = at, m.repaired+n
		return
	}
	l.add(note{from: at, to: at, repaired: n})
}

// Waits notes that nothing has moved between two moments. It is called again while that lasts.
func (l *Lane) Waits(w Wait, from, to time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := &l.notes[l.noted%keptNotes]; l.noted > 0 && m.wait == w && from <= m.to {
		m.to = to
		return
	}
	l.add(note{from: from, to: to, wait: w})
}

func (l *Lane) add(n note) {
	l.noted++
	l.notes[l.noted%keptNotes] = n
}

// record is a copy of what a lane remembers, oldest first.
type record struct {
	name  string
	ops   []moments
	notes []note
}

// copy returns what the lane remembers.
func (l *Lane) copy() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := record{name: l.name}
	for n := l.last - min(l.last, kept) + 1; n <= l.last; n++ {
		r.ops = append(r.ops, l.ops[n%kept])
	}
	for n := l.noted - min(l.noted, keptNotes) + 1; n <= l.noted; n++ {
		r.notes = append(r.notes, l.notes[n%keptNotes])
	}
	return r
}
