package group

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// MismatchError says that ranks were started with what does not go together.
type MismatchError struct {
	Ranks [2]int
	What  [2]string // each of them has
	Text  string
}

// Error names both ranks and what they have.
func (e *MismatchError) Error() string { return e.Text }

// A fault reaches a rank as its kind, one rank and its text, and what rank 0 of a rendezvous
// answers as text alone: of a second rank, and of what each of two called, only the text tells.
var (
	notCome  = regexp.MustCompile(`\branks? (\d+)[^:]* of \d+ (?:has|have) not come`)
	started  = regexp.MustCompile(`\brank 0 was started for (\d+ ranks), this is rank (\d+) of (\d+)`)
	replaced = regexp.MustCompile(`\banother process came as rank (\d+)`)
	anyRank  = regexp.MustCompile(`\brank (\d+)`)
	disagree = regexp.MustCompile(`\brank (\d+) called (.+?), rank (\d+) (.+)`)
)

// MismatchOf returns which two ranks an error says to disagree, and what each of them has or
// called.
func MismatchOf(err error) (ranks [2]int, what [2]string, ok bool) {
	var start *MismatchError
	var fault *Fault
	var answer refusal
	switch {
	case errors.As(err, &start):
		return start.Ranks, start.What, true
	case errors.As(err, &fault) && fault.Kind == Mismatch:
		if m := disagree.FindStringSubmatch(fault.Text); m != nil {
			return [2]int{number(m[1]), number(m[3])}, [2]string{m[2], m[4]}, true
		}
		return [2]int{fault.Rank, -1}, [2]string{fault.Text, ""}, true
	case errors.As(err, &answer):
		if m := started.FindStringSubmatch(string(answer)); m != nil {
			return [2]int{0, number(m[2])}, [2]string{m[1], m[3] + " ranks"}, true
		}
		if answer == otherJob {
			return [2]int{0, -1}, [2]string{"another job", ""}, true
		}
	}
	return ranks, what, false
}

// PathOf returns from which rank to which one data do not pass, if that is what an error says; -1
// is a rank that it does not name.
func PathOf(err error) (from, to int, ok bool) {
	var fault *Fault
	if !errors.As(err, &fault) || fault.Kind != Path {
		return 0, 0, false
	}
	from = -1
	if m := anyRank.FindStringSubmatch(fault.Text); m != nil {
		from = number(m[1])
	}
	return from, fault.Rank, true
}

// number reads digits; too many of them are no rank.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// RankOf returns the rank that an error is about: the one that died, left, did not come, or
// whose place another process has.
func RankOf(err error) (rank int, ok bool) {
	var fault *Fault
	var absent *absentError
	var missing *missingError
	var answer refusal
	switch {
	case errors.As(err, &fault):
		return fault.Rank, fault.Kind != Closed
	case errors.As(err, &absent):
		return absent.rank, true
	case errors.As(err, &missing):
		return missing.rank, true
	case errors.As(err, &answer):
		if m := notCome.FindStringSubmatch(string(answer)); m != nil {
			return number(m[1]), true
		}
		if m := replaced.FindStringSubmatch(string(answer)); m != nil {
			return number(m[1]), true
		}
	}
	return 0, false
}

// cannotJoin is the error that the other ranks get when this one cannot join because of err. If ctx was
// cancelled, it is this one that gives up, for whomever it waited.
func (a *agreement) cannotJoin(ctx context.Context, err error) *Fault {
	var fault *Fault
	var absent *absentError
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &absent) && (ctx.Err() == nil || timedOut(ctx)):
		return &Fault{Kind: Dead, Rank: absent.rank, Text: fmt.Sprintf("%v (seen by rank %d)", absent.err, a.rank)}
	}
	return &Fault{Kind: Aborted, Rank: a.rank, Text: fmt.Sprintf("it cannot join: %v", err)}
}
