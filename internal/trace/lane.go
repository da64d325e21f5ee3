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
	Root  int    // its place in the lane; -1: there is none
}

// Progress is an operation from when it was posted to its end, by the lane's clock. Only the driver of the operation
// uses it; a Lane has copies.
type Progress struct {
	Operation
	Posted  time.Duration
	Ended   time.Duration   // once it has ended
	Account overlap.Account // once it has ended, too
	number  uint64          // of the lane's operations; they are numbered from 1, and 0 was not kept yet
	entered [overlap.Finish + 1]time.Duration
	passed  uint8 // bit p: it has entered Phase p
	outcome outcome
}

type outcome uint8

const (
	inFlight outcome = iota
	done
	failed
)

// String names it.
func (o outcome) String() string { return [...]string{"in flight", "done", "failed"}[o] }

// Enter notes that the operation has come to a phase after Queued, and reports whether that is news. Only the first
// time counts: Turn and Transfer alternate with each batch, and the account at the end says how long both were.
func (s *Progress) Enter(p overlap.Phase, at time.Duration) (news bool) {
	if s.passed>>p != 0 {
		return false
	}
	s.passed |= 1 << p
	s.entered[p] = at
	return true
}

// End notes that the operation is done, or has failed.
func (s *Progress) End(well bool, a overlap.Account, at time.Duration) {
	s.Ended, s.Account, s.outcome = at, a, failed
	if well {
		s.outcome = done
	}
}

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
// that is held for a few instructions, a few times an operation, never for a chunk.
type Lane struct {
	name  string
	ranks []int // by place in the lane
	mu    sync.Mutex
	last  uint64 // operation that was kept
	ops   [kept]Progress
	noted uint64
	notes [keptNotes]note
}

// NewLane returns an empty memory of a lane that has a name. ranks are those of the group that the lane joins: the lane
// knows them by their place there.
func NewLane(name string, ranks []int) *Lane { return &Lane{name: name, ranks: ranks} }

// Keep remembers an operation, or its state now if it was kept before, unless the operation is older than those
// that the lane remembers. Only the caller uses the Progress meanwhile.
func (l *Lane) Keep(s *Progress) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.number == 0 {
		l.last++
		s.number = l.last
	} else if l.ops[s.number%kept].number != s.number {
		return
	}
	l.ops[s.number%kept] = *s
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
	ranks []int
	ops   []Progress
	notes []note
}

// copy returns what the lane remembers.
func (l *Lane) copy() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := record{name: l.name, ranks: l.ranks}
	for n := l.last - min(l.last, kept) + 1; n <= l.last; n++ {
		r.ops = append(r.ops, l.ops[n%kept])
	}
	for n := l.noted - min(l.noted, keptNotes) + 1; n <= l.noted; n++ {
		r.notes = append(r.notes, l.notes[n%keptNotes])
	}
	return r
}
