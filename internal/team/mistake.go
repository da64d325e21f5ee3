package team

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// ArgumentError says that a call was wrong in a way that this rank can see by
// itself. The group goes on.
type ArgumentError struct{ Text string }

// Error names the argument and the values that are allowed.
func (e *ArgumentError) Error() string { return e.Text }

// Argument is an ArgumentError.
func Argument(format string, args ...any) error {
	return &ArgumentError{fmt.Sprintf(format, args...)}
}

// MismatchError says that ranks were started with what does not go together.
type MismatchError struct {
	Between collective.Disagreement
	Text    string
}

// Error names both ranks and the value that each has.
func (e *MismatchError) Error() string { return e.Text }
