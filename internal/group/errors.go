package group

import (
	"errors"
	"fmt"
)

// RankOf returns the rank that an error is about: the one that died, left, or did not come.
func RankOf(err error) (rank int, ok bool) {
	var fault *Fault
	var absent *absentError
	switch {
	case errors.As(err, &fault):
		return fault.Rank, fault.Kind != Closed
	case errors.As(err, &absent):
		return absent.rank, true
	}
	return 0, false
}

// cannotJoin is what the other ranks are told when this one cannot join because of err.
func (p *plan) cannotJoin(err error) *Fault {
	var fault *Fault
	var absent *absentError
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &absent):
		return &Fault{Kind: Dead, Rank: absent.rank, Text: fmt.Sprintf("%v (seen by rank %d)", absent.err, p.rank)}
	}
	return &Fault{Kind: Aborted, Rank: p.rank, Text: fmt.Sprintf("it cannot join: %v", err)}
}
