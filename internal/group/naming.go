package group

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
)

// Engines, fabrics and switches know the members of a column or node by their place there, which is what
// their errors call a rank, and operations by the steps that reach them. Here, and nowhere else, that is
// put into the words of the group, where an error leaves an engine.

var (
	rankInText  = regexp.MustCompile(`\brank (\d+)`)
	ranksInText = regexp.MustCompile(`\branks \[([\d ]+)\]`)
)

// inGroup returns a text in which places are ranks of the group.
func (m *members) inGroup(text string) string {
	text = rankInText.ReplaceAllStringFunc(text, func(s string) string { return "rank " + m.name(s[len("rank "):]) })
	return ranksInText.ReplaceAllStringFunc(text, func(s string) string {
		places := strings.Fields(s[len("ranks [") : len(s)-1])
		for i := range places {
			places[i] = m.name(places[i])
		}
		return "ranks [" + strings.Join(places, " ") + "]"
	})
}

// name returns the rank of a place, both in digits. What is no place stays.
func (m *members) name(place string) string {
	if i := number(place); i >= 0 && i < m.size() {
		return strconv.Itoa(m.ranks[i])
	}
	return place
}

// namedError is an error in other words.
type namedError struct {
	text string
	err  error
}

func (e *namedError) Error() string { return e.text }
func (e *namedError) Unwrap() error { return e.err }

// inRanks returns an error of what knows members by their place in terms of ranks.
func (m *members) inRanks(err error) error {
	var mismatch *collective.MismatchError
	var broken *direct.BrokenError
	switch {
	case err == nil || m.all:
		return err
	case errors.As(err, &mismatch) && mismatch.Party == "rank":
		of := *mismatch
		of.Who = [2]int{m.rank(of.Who[0]), m.rank(of.Who[1])}
		if of.Called {
			return &of // what callers called, they called in the group
		}
		for i, what := range of.What {
			of.What[i] = m.inGroup(what)
		}
		if of.About != "" {
			of.About = "a step (" + of.About + " of its lane)"
		}
		return &of
	case errors.As(err, &broken):
		return &direct.BrokenError{Rank: m.rank(broken.Rank), Err: m.inRanks(broken.Err)}
	}
	if text := m.inGroup(err.Error()); text != err.Error() {
		return &namedError{text, err}
	}
	return err
}
