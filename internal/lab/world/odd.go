package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// Odd is a call that some ranks make in place of the one that the others make at that step.
type Odd struct {
	Ranks []int
	Step  int
	Call  Call
}

// lastOdd is how many calls follow an odd one at least: more than a rank has under way. So a rank that has given and
// got everything in the odd call comes to a later one that tells it.
const lastOdd = mostAsync + 2

// call returns what a rank calls at a step.
func (s *Scenario) call(rank, step int) Call {
	for _, o := range s.Odds {
		if o.Step == step && slices.Contains(o.Ranks, rank) {
			return o.Call
		}
	}
	return s.Calls[step-1]
}

// reduces reports whether a collective is of the reduce lane alone. What ranks call on different lanes they do
// not compare.
func (k Kind) reduces() bool { return k == ReduceScatter || k == Reduce }

// fitOdds mends what a change has left dangling, and reports whether the rest can be run.
func (s *Scenario) fitOdds() bool {
	for i := range s.Odds {
		o := &s.Odds[i]
		o.Call.Root = min(o.Call.Root, s.Net.Ranks-1)
		o.Ranks = slices.DeleteFunc(slices.Clone(o.Ranks), func(r int) bool { return r >= s.Net.Ranks })
		if n := len(o.Ranks); n == 0 || n == s.Net.Ranks || o.Step < 1 || o.Step > len(s.Calls)-lastOdd || s.Return > 0 ||
			len(s.Events) > 0 {
			return false
		}
		c := s.Calls[o.Step-1]
		if c.Kind == Allreduce || o.Call.Kind == Allreduce || c.Kind.reduces() != o.Call.Kind.reduces() || c.Keep > 0 ||
			o.Call.Keep > 0 || o.Call.Root < 0 {
			return false
		}
		if c.Kind.reduces() && min(c.Bytes, o.Call.Bytes) < 4 || c.same(&o.Call) {
			return false
		}
	}
	return len(s.Odds) < 2 &&
		(len(s.Odds) == 0 || !slices.ContainsFunc(s.Faults, func(f Fault) bool { return s.ends(&f) != never }))
}

// same reports whether two calls are the same, apart from fields that are not looked at.
func (c *Call) same(o *Call) bool {
	root := c.Root == o.Root || c.Kind != Broadcast && c.Kind != Reduce
	return c.Kind == o.Kind && root && (c.Bytes == o.Bytes || c.Kind == Barrier) && (c.Type == o.Type || !c.Kind.reduces())
}

// differ has, in some seeds in which nothing else ends the group, some ranks call something else. It draws from a
// source of its own, so that all else is as it was.
func (s *Scenario) differ(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x6f6464))}
	if d.chance(0.75) || len(s.Calls) <= lastOdd {
		return
	}
	for tries := 0; tries < 8 && !s.tryOdd(d.odd(s)); tries++ {
		// A call that cannot be odd was drawn.
	}
}

// odd draws an odd call.
func (d draw) odd(s *Scenario) Odd {
	o := Odd{Step: 1 + d.IntN(len(s.Calls)-lastOdd)}
	o.Call = s.Calls[o.Step-1]
	switch d.IntN(4) {
	case 0:
		o.Call.Bytes += 4
	case 1:
		o.Call.Kind = of(d, Allgather, Broadcast, Barrier, ReduceScatter, Reduce)
	default:
		o.Call.Root = d.IntN(s.Net.Ranks)
	}
	if o.Call.Kind == Barrier {
		o.Call.Bytes = 0
	}
	o.Ranks = []int{d.IntN(s.Net.Ranks)}
	if d.chance(0.5) { // or its host
		o.Ranks = s.beside(o.Ranks[0])
	}
	return o
}

// tryOdd adds an odd call if there can be such a one, and reports whether.
func (s *Scenario) tryOdd(o Odd) bool {
	back := s.Return
	if s.Odds, s.Return = []Odd{o}, 0; s.fitOdds() {
		return true
	}
	s.Odds, s.Return = nil, back
	return false
}

// odd is the cause that there is where ranks call different things.
func (s *Scenario) odd() (c cause) {
	c = cause{bound: 2 * time.Second, kind: []int{int(group.Mismatch)}, text: fmt.Sprintf("odd calls %+v", s.Odds)}
	for r := range s.Net.Ranks {
		c.ranks = append(c.ranks, r)
	}
	return c
}

// noticed checks that all ranks are told that they have called different things.
func (s *Scenario) noticed(ranks []*rank) error {
	for _, o := range s.Odds {
		for _, r := range ranks {
			told := slices.ContainsFunc(r.steps, func(o outcome) bool {
				var f *group.Fault
				return errors.As(o.err, &f) && f.Kind == group.Mismatch
			})
			if !told && !s.cannotJoin(r) {
				return fmt.Errorf("rank %d is not told that ranks %v have called %+v at step %d, and others %+v", r.number, o.Ranks,
					o.Call, o.Step, s.Calls[o.Step-1])
			}
		}
	}
	return nil
}

// cannotJoin reports whether a rank has not come so far as to call anything: others have failed before it had joined.
func (s *Scenario) cannotJoin(r *rank) bool { return r.steps[0].err != nil }
