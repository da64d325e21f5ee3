// Package search looks for scenarios of the simulators that fail: it runs random
// ones on all processors (Soak), makes what fails as small as it can (Shrink)
// and runs what somebody has written down again (Replay). It works on any
// scenario that JSON can hold; Multicast and InNetwork are the two there are.
//
// Scenarios that once failed are in testdata/seeds.json, and planted_test.go
// shows that the search finds the bugs that are planted there.
package search

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Kind is a family of scenarios and how to run one. S is encoded as JSON: all
// that a run depends on must be in exported fields, the seed in one named Seed.
type Kind[S any] struct {
	Title string
	// Flags choose this kind on the command line of `mcast-lab sim soak`.
	Flags string
	// Random returns the scenario of a seed.
	Random func(seed uint64) S
	Run    func(*S) Outcome
	// Fit mends what a change has left dangling, such as a root that is no rank any more, and reports
	// whether the scenario may be run. A scenario that it lets pass must not fail unless the protocol
	// is wrong.
	Fit func(*S) bool
	// Changes are ways to make a scenario smaller that change more than one value; see Change.
	Changes []Change[S]
}

// Change makes a scenario smaller in its n-th way, counted from 0. It returns
// false, and leaves the scenario alone, when it has no such way.
type Change[S any] func(s *S, n int) bool

// Outcome is what a run came to.
type Outcome struct {
	Err    error // the first violation, nil if there was none
	Ops    int   // operations completed and checked: each counts once
	Ranks  int   // ... and once a rank
	Events int
	Bytes  int // checked
	Hash   uint64
	Text   func() string // describes the scenario and the run
}

// run runs a scenario; a panic is a failure like any other.
func (k *Kind[S]) run(s *S) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("panic: %v", p)
			stack := debug.Stack()
			o = Outcome{Err: err, Text: func() string { return fmt.Sprintf("%v\n%s", err, stack) }}
		}
	}()
	return k.Run(s)
}

// seed runs the random scenario of a seed.
func (k *Kind[S]) seed(seed uint64) Outcome {
	s := k.Random(seed)
	return k.run(&s)
}

// Replay runs a scenario written as JSON. It returns an error if that is none.
func (k *Kind[S]) Replay(text string) (Outcome, error) {
	s, err := decode[S]([]byte(text))
	if err != nil {
		return Outcome{}, fmt.Errorf("not a scenario of %s: %w", k.Title, err)
	}
	before, err := encode(&s)
	if err != nil {
		return Outcome{}, err
	}
	fits := k.Fit(&s)
	after, err := encode(&s)
	if err != nil {
		return Outcome{}, err
	}
	switch {
	case !fits:
		return Outcome{}, errors.New("not a scenario that can be run")
	case string(before) != string(after):
		return Outcome{}, fmt.Errorf("not a scenario that can be run; the nearest is %s", after)
	}
	return k.run(&s), nil
}

// Name returns the title of the scenarios, for people.
func (k *Kind[S]) Name() string { return k.Title }
