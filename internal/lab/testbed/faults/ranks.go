package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// ranks are what the ranks of a job have said so far.
type ranks struct {
	mu    sync.Mutex
	all   []said
	news  chan struct{} // holds one when something was said since it was last taken
	wrong error         // a rank has said something that no worker says
}

// said is what a rank has said.
type said struct {
	line    []byte // not yet whole
	joined  bool
	round   int // last that was reported
	acted   time.Time
	failed  *worker.Line // its first error
	closed  *worker.Line
	longest float64 // ms, of its operations
	wrong   uint64  // elements
	route   string
	notes   []string
}

func newRanks(n int) *ranks {
	r := &ranks{all: make([]said, n), news: make(chan struct{}, 1)}
	for i := range r.all {
		r.all[i].round = -1
	}
	return r
}

// writer takes what a rank writes.
func (r *ranks) writer(rank int) io.Writer { return rankWriter{r, rank} }

type rankWriter struct {
	*ranks
	rank int
}

// Write takes whole lines and keeps the rest.
func (w rankWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.all[w.rank]
	s.line = append(s.line, b...)
	for {
		line, rest, whole := bytes.Cut(s.line, []byte{'\n'})
		if !whole {
			break
		}
		var l worker.Line
		if err := json.Unmarshal(line, &l); err != nil {
			w.wrong = fmt.Errorf("rank %d said %q: %w", w.rank, line, err)
		} else {
			s.hear(l)
		}
		s.line = rest
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *said) hear(l worker.Line) {
	s.longest, s.wrong = max(s.longest, l.Longest), max(s.wrong, l.Wrong)
	if l.Route != "" {
		s.route = l.Route
	}
	for _, note := range l.Notes {
		if !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
	}
	switch l.Event {
	case "joined":
		s.joined = true
	case "round":
		s.round = l.Round
	case "act":
		s.acted = l.At
	case "error":
		if s.failed == nil {
			s.failed = &l
		}
	case "closed":
		s.closed = &l
	}
}

// look calls f with what all ranks have said.
func (r *ranks) look(f func(all []said)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.all)
}
