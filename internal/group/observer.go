package group

import (
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// observer is how others see a group: the pages that mcast top reads, and traces.
type observer interface {
	// Publish has those of this host's user who ask see a page, where MCAST_METRICS says, until it is withdrawn, and
	// has the job answer them.
	Publish(where string, page func() any, job *live.Job) (withdraw func(), err error)
	// Record has a group in the traces of this process until it is withdrawn.
	Record(g *trace.Group) (withdraw func())
	// TakeTrace returns what this process did last, because of an error, if it is wanted; nil as well where one was taken a
	// moment ago.
	TakeTrace(wanted func(*trace.Trace) bool) *trace.Trace
	// WriteTrace writes it where MCAST_TRACE says, and returns to which file; empty: to none.
	WriteTrace(where string, t *trace.Trace) (path string, err error)
}

// unobserved is an observer by which nobody sees a group, as where its network is not the kernel.
type unobserved struct{}

// Publish implements observer.
func (unobserved) Publish(string, func() any, *live.Job) (withdraw func(), err error) {
	return func() {}, nil
}

// Record implements observer.
func (unobserved) Record(*trace.Group) (withdraw func()) { return func() {} }

// TakeTrace implements observer.
func (unobserved) TakeTrace(func(*trace.Trace) bool) *trace.Trace { return nil }

// WriteTrace implements observer.
func (unobserved) WriteTrace(string, *trace.Trace) (path string, err error) { return "", nil }

// process is the observer of a process.
type process struct{}

// Publish implements observer.
func (process) Publish(where string, page func() any, job *live.Job) (withdraw func(), err error) {
	switch where {
	case "off":
		return func() {}, nil
	case "auto":
		where = ""
	}
	return live.Publish(where, page, job)
}

// Record implements observer.
func (process) Record(g *trace.Group) (withdraw func()) { return trace.Add(g) }

// lastTrace is when a trace was taken because of an error: one dead rank fails many groups, and a trace is of all of them.
var lastTrace struct {
	sync.Mutex
	at time.Time
}

// betweenTraces is how long no other trace is taken after one, because of an error.
const betweenTraces = 10 * time.Second

// TakeTrace implements observer.
func (process) TakeTrace(wanted func(*trace.Trace) bool) *trace.Trace {
	lastTrace.Lock()
	defer lastTrace.Unlock()
	if now := time.Now(); lastTrace.at.IsZero() || now.Sub(lastTrace.at) >= betweenTraces {
		if t := trace.Take(); wanted(t) {
			lastTrace.at = now
			return t
		}
	}
	return nil
}

// WriteTrace implements observer.
func (process) WriteTrace(where string, t *trace.Trace) (path string, err error) {
	return WriteTrace(where, t)
}
