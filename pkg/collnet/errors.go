package collnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// ArgumentError names a wrong argument of a call or a wrong option, and the allowed values. Nothing was
// begun.
type ArgumentError struct{ Text string }

// Error returns the text.
func (e *ArgumentError) Error() string { return e.Text }

func argument(format string, args ...any) error {
	return &ArgumentError{Text: fmt.Sprintf(format, args...)}
}

// Reason says why a group ended, or did not come about, because of a rank.
type Reason uint8

// The reasons.
const (
	RankLost    Reason = iota + 1 // it died, stopped, or was cut off
	RankLeft                      // it closed the group while others still used it
	RankAborted                   // it gave the group up (Abort), or could not join
	RankFailed                    // something on its machine failed: an interface, memory
	RankAbsent                    // it has not come to join, cannot be reached, or another process came in its place
)

var reasons = [...]string{
	RankLost: "lost", RankLeft: "left", RankAborted: "aborted", RankFailed: "failed", RankAbsent: "absent",
}

// String returns the reason's name.
func (r Reason) String() string {
	if r == 0 || int(r) >= len(reasons) {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return reasons[r]
}

// RankError says that the group ended, or did not come about, because of one rank.
type RankError struct {
	Rank   int
	Reason Reason
	Text   string // the whole message

	cause error
}

// Error returns the text.
func (e *RankError) Error() string { return e.Text }

// Unwrap returns a *TimeoutError if it is this rank's time that ran out, else what else is known of
// the cause. Where another rank's time ran out, Text alone says so.
func (e *RankError) Unwrap() error { return e.cause }

// MismatchError says that two ranks disagree about an operation or an option.
type MismatchError struct {
	Ranks [2]int    // -1: not known
	What  [2]string // each of them called or has
	Text  string    // the whole message
}

// Error returns the text.
func (e *MismatchError) Error() string { return e.Text }

// PathError says that data do not pass from one rank to another, though both answer.
type PathError struct {
	From, To int    // -1: not known
	Text     string // the whole message
}

// Error returns the text.
func (e *PathError) Error() string { return e.Text }

// TimeoutError says that the time that an option allows is over. It is a context.DeadlineExceeded
// to errors.Is. On the rank that ran out of time it is the cause of a *RankError if it is
// known which rank it waited for.
type TimeoutError struct {
	Setting string // the variable of the option, such as MCAST_JOIN_TIMEOUT
	After   time.Duration
	Text    string // the whole message
}

// Error returns the text.
func (e *TimeoutError) Error() string { return e.Text }

// Is makes errors.Is report that it is a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// UnavailableError says what the machine lacks that a group needs, and what to provide or to set.
type UnavailableError struct{ Text string }

// Error returns the text.
func (e *UnavailableError) Error() string { return e.Text }

// BusyError says that 1024 operations wait already. Nothing was begun: wait for one.
type BusyError struct{}

// Error says so.
func (*BusyError) Error() string { return engine.ErrBusy.Error() }

// ClosedError says that this rank has closed the group.
type ClosedError struct{}

// Error says so.
func (*ClosedError) Error() string { return "the group is closed" }

// public returns an error of this package for one of package group; what has no type here, such as
// the end of a context or what the operating system says, stays as it is.
func public(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if _, ok := errors.AsType[*group.ArgumentError](err); ok {
		return &ArgumentError{Text: text}
	}
	if errors.Is(err, engine.ErrBusy) {
		return &BusyError{}
	}
	if errors.Is(err, fabric.ErrUnavailable) {
		return &UnavailableError{Text: text}
	}
	fault, _ := errors.AsType[*group.Fault](err)
	if fault != nil && fault.Kind == group.Closed {
		return &ClosedError{}
	}
	if between, ok := group.MismatchOf(err); ok {
		return &MismatchError{Ranks: between.Ranks, What: between.What, Text: text}
	}
	if from, to, ok := group.PathOf(err); ok {
		return &PathError{From: from, To: to, Text: text}
	}
	cause := err
	if timeout, ok := errors.AsType[*owntime.TimeoutError](err); ok {
		cause = &TimeoutError{Setting: timeout.Setting, After: timeout.After, Text: text}
	}
	if rank, ok := group.RankOf(err); ok {
		return &RankError{Rank: rank, Reason: reasonOf(fault), Text: text, cause: cause}
	}
	return cause
}

// reasonOf returns the reason that a fault is; RankAbsent if there is none, since nobody has
// joined.
func reasonOf(f *group.Fault) Reason {
	switch {
	case f == nil:
		return RankAbsent
	case f.Kind == group.Dead:
		return RankLost
	case f.Kind == group.Left:
		return RankLeft
	case f.Kind == group.Aborted:
		return RankAborted
	}
	return RankFailed
}
