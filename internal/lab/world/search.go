package world

import (
	"fmt"
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/search"
)

// Groups are the scenarios of this package, for package search, run in bubbles of a test.
func Groups(t *testing.T) *search.Kind[Scenario] { return kind(t, "groups in virtual time", Random) }

// Switches are groups that have aggregation nodes.
func Switches(t *testing.T) *search.Kind[Scenario] {
	return kind(t, "groups with a switch in virtual time", Switched)
}

func kind(t *testing.T, title string, random func(uint64) Scenario) *search.Kind[Scenario] {
	return &search.Kind[Scenario]{
		Title: title, Random: random, Fit: (*Scenario).Fit,
		Run: func(s *Scenario) search.Outcome {
			r := Play(t, s)
			return search.Outcome{Err: r.Err, Ops: r.Calls / s.Net.Ranks, Ranks: r.Calls, Events: r.Lost, Text: func() string {
				return fmt.Sprintf("%v\n%v of virtual time, %d calls, %d packets lost\n%s", s, r.Virtual, r.Calls, r.Lost, r.Log)
			}}
		},
	}
}
