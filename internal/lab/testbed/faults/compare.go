package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// compare compares what ranks have said with what the row says.
func (t *trial) compare(hung error) {
	if t.ranks.wrong != nil {
		t.report("%v", t.ranks.wrong)
	}
	for rank := range t.ranks.all {
		t.compareRank(rank, &t.ranks.all[rank], hung)
	}
	if bound := t.row.bound() + t.slack; hung == nil && t.outcome.Took > bound.Seconds() {
		t.report("it took %.1f s, and not at most %v", t.outcome.Took, t.row.bound())
	}
	for _, w := range t.row.Warns {
		if !t.warned(w) {
			t.report("no rank warned of %q", w)
		}
	}
}

func (t *trial) compareRank(rank int, s *said, hung error) {
	t.outcome.Longest = max(t.outcome.Longest, s.longest)
	if s.wrong > 0 {
		t.report("rank %d has %d wrong elements", rank, s.wrong)
	}
	if s.closed != nil && s.closed.Descriptors > 0 {
		t.report("rank %d has left %d descriptors open", rank, s.closed.Descriptors)
	}
	if s.failed != nil {
		text := s.failed.Op + ": " + s.failed.Error
		if !slices.Contains(t.outcome.Errors, text) {
			t.outcome.Errors = append(t.outcome.Errors, text)
		}
	}
	switch {
	case !t.row.mustReport(rank) || hung != nil && s.failed == nil:
	case t.row.Ends == Succeeds && s.failed != nil:
		t.report("rank %d failed: %s: %s", rank, s.failed.Op, s.failed.Error)
	case t.row.Ends == Succeeds && s.closed != nil && s.closed.Error != "":
		t.report("rank %d could not close well: %s", rank, s.closed.Error)
	case t.row.Ends == Succeeds && s.closed == nil:
		t.report("rank %d has not closed%s", rank, t.tail(rank))
	case t.row.Ends == Errors && s.failed == nil:
		t.report("rank %d was told nothing%s", rank, t.tail(rank))
	case t.row.Ends == Errors:
		for _, want := range t.row.Says {
			if !contains(s.failed.Error, want) {
				t.report("the error of rank %d does not say %q: %s", rank, want, s.failed.Error)
			}
		}
	}
}

// contains says whether a text contains one of some with bars between them.
func contains(text, oneOf string) bool {
	return slices.ContainsFunc(strings.Split(oneOf, "|"), func(w string) bool { return strings.Contains(text, w) })
}

// warned says whether some rank's notes or log contain a text.
func (t *trial) warned(text string) bool {
	for rank := range t.ranks.all {
		if slices.ContainsFunc(t.ranks.all[rank].notes, func(n string) bool { return contains(n, text) }) {
			return true
		}
		log, err := os.ReadFile(t.run.Log(rank))
		if err == nil && contains(string(log), text) {
			return true
		}
	}
	return false
}

// tail returns the end of what a rank has written.
func (t *trial) tail(rank int) string {
	const most = 600
	log, err := os.ReadFile(t.run.Log(rank))
	if err != nil || len(log) == 0 {
		return ""
	}
	return "; its log ends with: " + strings.TrimSpace(string(log[max(0, len(log)-most):]))
}

// seconds writes a time for people.
func seconds(s float64) string {
	return fmt.Sprint((time.Duration(s * float64(time.Second))).Round(10 * time.Millisecond))
}
