package group

import (
	"context"
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

// Is makes it known to errors.Is as what it is.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
