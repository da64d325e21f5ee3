package engine

import (
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// Waiting says what the oldest operation of a lane waits for.
type Waiting struct {
	Seq   uint32          // counts the operations of the lane
	What  collective.Text // the operation, and its number: of a step, what was called
	Ranks []int           // whom it waits for, ascending; none: nobody that this rank can name
	Why   string          // the reason in words
	At    time.Duration   // when the lane was looked at, by the engine's clock
	// Idle is for how long nothing of the operation had happened then. A driver that did not run
	// meanwhile has not looked: one look proves nothing, two with rounds between them do.
	Idle time.Duration
}

// watched holds the question of a lane's watcher and the driver's answer.
type watched struct {
	asked  atomic.Bool // a watcher wants an answer
	answer atomic.Pointer[Waiting]
}

// ask returns the last answer, and asks for the next one.
func (w *watched) ask(wake func()) *Waiting {
	last := w.answer.Load()
	w.asked.Store(true)
	wake()
	return last
}

// publish answers; nil: nothing is in flight.
func (w *watched) publish(now *Waiting) {
	w.asked.Store(false)
	w.answer.Store(now)
}

// Waiting returns what the oldest operation waited for when the lane's driver last looked, or nil if none was in
// flight, and has the driver look again. A watcher calls it time and again, from any goroutine; each answer is as old
// as the call before. It costs the driver nothing between calls.
func (g *Gather) Waiting() *Waiting { return g.watched.ask(g.fab.Wake) }

// waiting answers Waiting.
func (g *Gather) waiting() *Waiting {
	w, ok := g.comm.Waiting()
	if !ok {
		return nil
	}
	return &Waiting{
		Seq: w.Seq, What: w.Called(), Ranks: w.Ranks, Why: w.Why(), At: g.now, Idle: g.now - w.Moved,
	}
}

// Waiting is Gather.Waiting.
func (r *Reduce) Waiting() *Waiting { return r.watched.ask(r.Wake) }

// waiting answers Waiting. When something last moved is known as of the question before.
func (r *Reduce) waiting() *Waiting {
	w, ok := r.lane.Waiting()
	if !ok {
		return nil
	}
	now := r.clock()
	if before := r.watched.answer.Load(); before == nil || before.Seq != w.Number || w.Moved != r.moved {
		r.moved, r.movedAt = w.Moved, now
	}
	return &Waiting{
		Seq: w.Number, What: w.What, Ranks: w.Ranks, Why: w.Why, At: now, Idle: now - r.movedAt,
	}
}
