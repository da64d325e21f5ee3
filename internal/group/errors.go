package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// MismatchOf returns which two ranks an error says to disagree, and what each of them has or
// called.
func MismatchOf(err error) (d collective.Disagreement, ok bool) {
	var start *team.MismatchError
	var fault *Fault
	var answer *bootstrap.Refusal
	switch {
	case errors.As(err, &start):
		return start.Between, true
	case errors.As(err, &fault) && fault.Kind == Mismatch:
		if fault.Between != nil {
			return *fault.Between, true
		}
		return collective.Disagreement{Ranks: [2]int{fault.Rank, -1}, What: [2]string{fault.Text, ""}}, true
	case errors.As(err, &answer) && answer.Between != nil:
		return *answer.Between, true
	}
	return d, false
}

// PathOf returns from which rank to which one data do not pass, if that is what an error says.
func PathOf(err error) (from, to int, ok bool) {
	var fault *Fault
	if !errors.As(err, &fault) || fault.Kind != Path {
		return 0, 0, false
	}
	return fault.From, fault.Rank, true
}

// RankOf returns the rank that an error is about: it died, left or did not come, or another process
// has its place.
func RankOf(err error) (rank int, ok bool) { return bootstrap.RankOf(err) }

// cannotJoin is the error that the other ranks get when a rank cannot join because of err. If ctx was
// cancelled, it is this one that gives up, for whomever it waited.
func cannotJoin(ctx context.Context, rank int, err error) *Fault {
	var fault *Fault
	var absent *bootstrap.AbsentError
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &absent) && (ctx.Err() == nil || owntime.TimedOut(ctx)):
		return &Fault{Kind: Dead, Rank: absent.Rank, Text: fmt.Sprintf("%v (seen by rank %d)", absent.Err, rank)}
	}
	return &Fault{Kind: Aborted, Rank: rank, Text: fmt.Sprintf("it cannot join: %v", err)}
}
