package group

import (
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// observer is how others see a group: the pages that mcast top reads, and traces.
type observer interface {
	// publish has those of this host's user who ask see a page, where MCAST_METRICS says, until it is withdrawn, and
	// has the job answer them.
	publish(where string, page func() any, job *live.Job) (withdraw func(), err error)
	// record has a group in the traces of this process until it is withdrawn.
	record(g *trace.Group) (withdraw func())
	// takeTrace returns what this process did last, because of an error, if it is wanted; nil as well where one was taken a
	// moment ago.
	takeTrace(wanted func(*trace.Trace) bool) *trace.Trace
	// writeTrace writes it where MCAST_TRACE says, and returns to which file; empty: to none.
	writeTrace(where string, t *trace.Trace) (path string, err error)
}

// unobserved is an observer by which nobody sees a group, as where its network is not the kernel.
type unobserved struct{}

func (unobserved) publish(string, func() any, *live.Job) (withdraw func(), err error) {
	return func() {}, nil
}

func (unobserved) record(*trace.Group) (withdraw func()) { return func() {} }

func (unobserved) takeTrace(func(*trace.Trace) bool) *trace.Trace { return nil }

func (unobserved) writeTrace(string, *trace.Trace) (path string, err error) { return "", nil }

// process is the observer of a process.
type process struct{}

func (process) publish(where string, page func() any, job *live.Job) (withdraw func(), err error) {
	switch where {
	case "off":
		return func() {}, nil
	case "auto":
		where = ""
	}
	return live.Publish(where, page, job)
}

func (process) record(g *trace.Group) (withdraw func()) { return trace.Add(g) }

// lastTrace is when a trace was taken because of an error: one dead rank fails many groups, and a trace is of all of them.
var lastTrace struct {
	sync.Mutex
	at time.Time
}

// betweenTraces is how long no other trace is taken after one, because of an error.
const betweenTraces = 10 * time.Second

func (process) takeTrace(wanted func(*trace.Trace) bool) *trace.Trace {
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

func (process) writeTrace(where string, t *trace.Trace) (path string, err error) {
	return WriteTrace(where, t)
}
