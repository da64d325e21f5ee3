package bootstrap

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// AbsentError says that a rank cannot be connected.
type AbsentError struct {
	Rank int
	Err  error
}

func (e *AbsentError) Error() string { return fmt.Sprintf("rank %d %v", e.Rank, e.Err) }
func (e *AbsentError) Unwrap() error { return e.Err }

// missingError is about the first rank that has not come to the rendezvous, or was lost there.
type missingError struct {
	rank int
	error
}

func (e *missingError) Unwrap() error { return e.error }

// RankOf returns the rank that an error is about: it died, left or did not come, or another process
// has its place.
func RankOf(err error) (rank int, ok bool) {
	var fault *mesh.Fault
	var absent *AbsentError
	var missing *missingError
	var answer *Refusal
	switch {
	case errors.As(err, &fault):
		return fault.Rank, fault.Kind != mesh.Closed
	case errors.As(err, &absent):
		return absent.Rank, true
	case errors.As(err, &missing):
		return missing.rank, true
	case errors.As(err, &answer) && answer.Rank != nil:
		return *answer.Rank, true
	}
	return 0, false
}
