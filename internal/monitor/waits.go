package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// A rank may be as late as it likes: that is no fault. But a user who looks for the cause of a delay wants to know
// which rank is late before anything runs out of time.

// longWait is for how long an operation does not move before that is said. It is said again each time that
// the wait has doubled.
const longWait = 5 * time.Second

// lane is what a watcher asks of an engine.
type lane interface {
	InFlight() int
	Waiting() *engine.Waiting
}

// wait is what a watcher knows of a lane's oldest operation.
type wait struct {
	lane
	trace  *trace.Lane   // nil: nothing remembers
	among  *team.Members // whom the lane knows by their place
	asked  bool          // at the beat before, so that the answer is of now
	now    *Waiting      // nil: nothing waits
	seq    uint32        // of the operation, in the lane
	said   *Waiting      // what was last said of the wait; nil: nothing
	warned bool          // ... at least once as a warning
}

// Waiting says that an operation of this rank does not move.
type Waiting struct {
	Operation string        `json:"operation"` // and its number
	Ranks     []int         `json:"ranks"`     // whom it waits for; none: nobody that this rank can name
	Others    int           `json:"others"`    // ... and how many more, on a page
	Why       string        `json:"why"`       // the reason in words
	For       time.Duration `json:"for_ns"`
}

// String says it in a line.
func (w *Waiting) String() string {
	return fmt.Sprintf("waiting for %s for %v in %s: %s", w.whom(), w.For.Round(time.Second), w.Operation, w.Why)
}

func (w *Waiting) whom() string {
	if len(w.Ranks) == 0 {
		return "the network"
	}
	return team.RankList(w.Ranks)
}

// Waiting returns which operations do not move, as of a second ago at most, and for how long they have not.
func (m *Monitor) Waiting() []Waiting {
	if w := m.waiting.Load(); w != nil {
		return *w
	}
	return nil
}

// lanesToWatch are those of all levels, and the one of messages.
func (m *Monitor) lanesToWatch() (waits []wait) {
	for _, l := range m.ops.Levels() {
		waits = append(waits, wait{lane: l.Gather, among: l.Members}, wait{lane: l.Reduce, among: l.Members})
	}
	everyone := team.Everyone(m.plan.Rank, m.plan.Size)
	waits = append(waits, wait{lane: m.messages, among: &everyone})
	for i, t := range m.traces { // made in the same order
		waits[i].trace = t
	}
	return waits
}

// await looks what operations wait for.
func (m *watcher) await() {
	if m.waits == nil {
		m.waits = m.lanesToWatch()
	}
	var all []Waiting
	for i := range m.waits {
		w := &m.waits[i]
		w.look()
		m.tell(w)
		if w.now != nil && w.now.For >= monitorPause {
			all = append(all, *w.now)
		}
	}
	m.waiting.Store(&all)
}

// fade has those of the ranks waited for come to the front that were waited for lately, while anything is in flight.
func (m *watcher) fade() {
	if slices.ContainsFunc(m.waits, func(w wait) bool { return w.InFlight() > 0 }) {
		m.recent.Pass(m.Awaited())
	}
}

// look asks the lane, unless nothing is in flight: an idle one is left alone.
func (w *wait) look() {
	w.now = nil
	if w.InFlight() == 0 {
		w.asked = false
		return
	}
	answer := w.Waiting()
	if !w.asked {
		w.asked = true // the answer may be of long ago
		return
	}
	if answer == nil {
		return
	}
	if answer.Seq != w.seq {
		w.seq = answer.Seq
		return // until it is there at the next beat, too
	}
	w.now = &Waiting{
		Operation: answer.What.In(w.among.Name), Ranks: team.Pick(&team.Members{Ranks: answer.Ranks}, w.among.Ranks),
		Why: answer.Why, For: answer.Idle,
	}
	w.trace.Waits(trace.Wait{For: w.now.whom(), Operation: w.now.Operation, Why: w.now.Why}, answer.At-answer.Idle,
		answer.At)
}

// tell logs a wait that is long, and its end. The first one is a warning, and each that is twice as long as any
// that was: they do not fill the log of a job in which a rank is late now and then.
func (m *watcher) tell(w *wait) {
	if w.said != nil && (w.now == nil || w.now.For < w.said.For) {
		m.log.Log(context.Background(), levelOf(w.warned),
			fmt.Sprintf("no longer waiting for %s, after %v or more, in %s", w.said.whom(), w.said.For.Round(time.Second),
				w.said.Operation))
		w.said, w.warned = nil, false
	}
	if w.now == nil || w.now.For < longWait || w.said != nil && w.now.For < 2*w.said.For {
		return
	}
	warn := w.now.For >= 2*m.warned
	if warn {
		m.warned, w.warned = w.now.For, true
	}
	w.said = w.now
	m.log.Log(context.Background(), levelOf(warn), w.now.String())
}

func levelOf(warn bool) slog.Level {
	if warn {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
