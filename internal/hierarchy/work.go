package hierarchy

import (
	"context"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Work is an operation in flight.
type Work struct {
	*engine.Work
	lane   *overlap.Lane
	before []*Work // earlier steps on another lane, which a wait drives first
}

// NewWork returns an operation of a lane that is none of a level's.
func NewWork(w *engine.Work, lane *overlap.Lane) *Work { return &Work{Work: w, lane: lane} }

// Wait waits until the operation is done and returns its outcome, or until
// ctx ends and returns its error; the operation then goes on.
func (w *Work) Wait(ctx context.Context) error {
	if ctx == nil || ctx.Done() == nil {
		return w.WaitUntil(time.Time{})
	}
	defer context.AfterFunc(ctx, w.nudge)()
	if !w.drive(ctx.Done(), time.Time{}) {
		return ctx.Err()
	}
	return w.Err()
}

// WaitUntil is Wait with a deadline; the zero time is none.
func (w *Work) WaitUntil(deadline time.Time) error {
	if !w.drive(nil, deadline) {
		return context.DeadlineExceeded
	}
	return w.Err()
}

// drive reports whether the operation was done before quit was closed and the deadline had passed.
func (w *Work) drive(quit <-chan struct{}, deadline time.Time) bool {
	for _, step := range w.before {
		if !step.drive(quit, deadline) {
			return false
		}
	}
	return w.lane.Drive(w.Done(), quit, deadline)
}

// nudge has drive look at once whether it shall go on.
func (w *Work) nudge() {
	for _, step := range w.before {
		step.nudge()
	}
	w.lane.Nudge()
}

// LeaveToAgents leaves the operation to the agents.
func (w *Work) LeaveToAgents() {
	notified := w.lane
	for _, step := range w.before {
		if step.lane != notified {
			step.lane.Posted()
			notified = step.lane
		}
	}
	w.lane.Posted()
}
