package trace

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// Group is what a process has in its trace of a group.
type Group struct {
	Name       string // the same on all its ranks, and different for every group
	Rank, Size int
	Lanes      []*Lane
	Clock      func() time.Duration // of the lanes
}

// process has the groups of this process.
var process struct {
	sync.Mutex
	groups []*Group
}

// Add has a group in the traces of this process until it is removed.
func Add(g *Group) (remove func()) {
	process.Lock()
	defer process.Unlock()
	process.groups = append(process.groups, g)
	return func() {
		process.Lock()
		defer process.Unlock()
		process.groups = slices.DeleteFunc(process.groups, func(o *Group) bool { return o == g })
	}
}

// Trace is what the lanes of this process remembered at one moment.
type Trace struct {
	at     time.Time
	groups []recorded
	spans  []Span // of sources
}

// recorded is a group and a copy of what its lanes remembered, by the clock of the machine.
type recorded struct {
	*Group
	zero  int64         // when the clock of the lanes was 0, in nanoseconds since 1970
	until time.Duration // by the lanes' clock: operations in flight end here in the picture
	lanes []record
}

// Take copies what the lanes of this process remember.
func Take() *Trace {
	process.Lock()
	defer process.Unlock()
	t := &Trace{at: time.Now(), spans: fromSources()}
	for _, g := range process.groups {
		r := recorded{Group: g, zero: math.MaxInt64}
		for range 5 { // the time that this goroutine does not run between the two clocks makes it late
			r.until = g.Clock()
			r.zero = min(r.zero, time.Now().UnixNano()-int64(r.until))
		}
		for _, l := range g.Lanes {
			r.lanes = append(r.lanes, l.copy())
		}
		t.groups = append(t.groups, r)
	}
	return t
}

// Busy reports whether an operation was in flight.
func (t *Trace) Busy() bool {
	for i := range t.groups {
		for _, l := range t.groups[i].lanes {
			if slices.ContainsFunc(l.ops, func(s Progress) bool { return s.outcome == inFlight }) {
				return true
			}
		}
	}
	return false
}

// Write writes the trace as JSON.
func (t *Trace) Write(w io.Writer) error {
	d, err := t.document()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(d)
}
