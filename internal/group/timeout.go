package group

import (
	"context"
	"fmt"
	"time"
)

// timeoutError says which setting ended something. It is a context.DeadlineExceeded.
type timeoutError struct {
	setting string
	after   time.Duration
}

func (e *timeoutError) Error() string { return fmt.Sprintf("%s of %v is over", e.setting, e.after) }

// Is makes it known to errors.Is as what it is.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
