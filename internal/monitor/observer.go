package monitor

import (
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// Observer is how others see a group: the pages that mcast top reads, and traces.
type Observer interface {
	// publish has those of this host's user who ask see a page, where MCAST_METRICS says, until it is withdrawn, and
	// has the job answer them.
	publish(where string, page func() any, job *live.Job) (withdraw func(), err error)
	// record has a group in the traces of this process until it is withdrawn.
	record(g *trace.Group) (withdraw func())
	// takeTrace returns what this process did last, because of an error, if it is wanted; nil as well where one was taken
	// a moment ago.
	takeTrace(wanted func(*trace.Trace) bool) *trace.Trace
	// writeTrace writes it where MCAST_TRACE says, and returns to which file; empty: to none.
	writeTrace(where string, t *trace.Trace) (path string, err error)
}

// Unobserved is an observer by which nobody sees a group, as where its network is not the kernel.
type Unobserved struct{}

func (Unobserved) publish(string, func() any, *live.Job) (withdraw func(), err error) {
	return func() {}, nil
}

func (Unobserved) record(*trace.Group) (withdraw func()) { return func() {} }

func (Unobserved) takeTrace(func(*trace.Trace) bool) *trace.Trace { return nil }

func (Unobserved) writeTrace(string, *trace.Trace) (path string, err error) { return "", nil }

// Process is the observer of a process. One dead rank fails many groups, and a trace is of all of them: it takes none a
// moment after another one.
type Process struct {
	mu     sync.Mutex
	traced time.Time // when a trace was last taken
}

// ThisProcess is the one of this process.
var ThisProcess = new(Process)

func (*Process) publish(where string, page func() any, job *live.Job) (withdraw func(), err error) {
	switch where {
	case "off":
		return func() {}, nil
	case "auto":
		where = ""
	}
	return live.Publish(where, page, job)
}

func (*Process) record(g *trace.Group) (withdraw func()) { return trace.Add(g) }

// betweenTraces is how long no other trace is taken after one, because of an error.
const betweenTraces = 10 * time.Second

func (p *Process) takeTrace(wanted func(*trace.Trace) bool) *trace.Trace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.traced.IsZero() || now.Sub(p.traced) >= betweenTraces {
		if t := trace.Take(); wanted(t) {
			p.traced = now
			return t
		}
	}
	return nil
}

func (*Process) writeTrace(where string, t *trace.Trace) (path string, err error) {
	return writeTraceAt(where, t)
}
