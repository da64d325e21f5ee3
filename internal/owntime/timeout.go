package owntime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// TimeoutError says which setting ended something. It is a context.DeadlineExceeded.
type TimeoutError struct {
	Setting string // MCAST_...
	After   time.Duration
}

// Error names the setting and its value.
func (e *TimeoutError) Error() string { return fmt.Sprintf("%s of %v is over", e.Setting, e.After) }

// TimedOut reports whether a context has ended because a time is over, of owntime or of the clock on the wall.
func TimedOut(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// Is tells errors.Is that the error is a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
