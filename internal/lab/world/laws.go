package world

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// Whether a fault may end a group.
type verdict uint8

const (
	never verdict = iota // it is transient, or repairs make up for it
	may                  // data that need the path never arrive
	maybe                // too near to the bound between the two to tell
)

// mending is what TCP needs at most after a path is back: its longest pause, and a beat.
func (s *Scenario) mending() time.Duration { return lastRTO + s.Timeout/8 + 200*time.Millisecond }

// leastHole is the least size, in bytes, of packets that a path may lose and be of use: headers
// beside the 576 bytes that every host takes.
const leastHole = 600

// mostSmall is more than the bytes of any packet that ranks send before they have probed.
const mostSmall = 1282

// ends says whether a fault may end the group.
func (s *Scenario) ends(f *Fault) verdict {
	if s.node(f.From) || s.node(f.To) || f.What == Drop && f.Flow&Every == 0 {
		return never // of a switch: operations go on directly
	}
	if f.What != Drop {
		if f.What == Descriptors && f.For == 0 {
			return maybe
		}
		return never
	}
	if f.Flow&Every&^Multicast == 0 || len(s.hosts()) == 1 {
		return never
	}
	if f.Least > 0 && f.Least < leastHole {
		return maybe // while ranks probe, it is a path that is not worth while
	}
	if f.Share > 0 {
		if f.Share > 0.3 || f.Flow&Meeting != 0 && s.Timeout < manySYN {
			return maybe
		}
		return never
	}
	if f.For == 0 && f.At == 0 && f.Least >= mostSmall && f.Flow&Every == Every {
		return never // ranks probe, and make do with smaller packets
	}
	if f.For == 0 {
		return may
	}
	// Nobody is dead and no path broken before MCAST_TIMEOUT.
	if f.For+s.mending() < s.Timeout {
		return never
	}
	return maybe
}

// cause is something that justifies an error.
type cause struct {
	since time.Duration
	bound time.Duration // how soon all know, at the latest, once their operations need the broken part
	kind  []int         // of mesh.FaultKind
	ranks []int         // that the error may name
	alone []int         // ranks that are cut off: their own errors are not judged
	text  string
}

// causes lists what justifies an error.
func (s *Scenario) causes() (all []cause) {
	for _, e := range s.Events {
		if s.node(e.Rank) {
			continue
		}
		c := cause{
			since: e.At, bound: 2 * time.Second, ranks: []int{e.Rank}, alone: []int{e.Rank}, kind: []int{int(group.Dead)},
		}
		switch e.Deed {
		case Kill:
		case Crash:
			c.bound, c.ranks, c.alone = mesh.SilenceFor(s.Timeout)+time.Second, s.beside(e.Rank), s.beside(e.Rank)
		case Stop:
			if e.For <= s.Timeout {
				continue // it is late
			}
			c.bound = mesh.SilenceFor(s.Timeout) + time.Second
		case Abort:
			c.kind, c.alone, c.since = []int{int(group.Aborted)}, nil, never0
		case Leave:
			c.kind, c.alone, c.since = []int{int(group.Left)}, nil, never0
		}
		c.text = fmt.Sprintf("event %+v", e)
		all = append(all, c)
	}
	if len(s.Odds) > 0 {
		all = append(all, s.odd())
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		if s.ends(f) != may {
			continue
		}
		c := cause{
			since: f.At, bound: s.Timeout*3/2 + 4*time.Second, kind: []int{int(group.Dead), int(group.Path)},
			text: fmt.Sprintf("fault %+v", *f),
		}
		for r := range s.Net.Ranks {
			if f.From == Anybody || f.To == Anybody || s.Net.place(r) == s.Net.place(f.From) ||
				s.Net.place(r) == s.Net.place(f.To) {
				c.ranks = append(c.ranks, r)
			}
		}
		if f.Flow&Mesh != 0 {
			c.alone = c.ranks // each side of the fault may find the other dead
		}
		all = append(all, c)
	}
	return all
}

// never0 stands for a moment that depends on the ranks.
const never0 = time.Duration(0)

// quiet is when the last transient fault is over, and TCP has mended its damage.
func (s *Scenario) quiet() (at time.Duration) {
	for i := range s.Faults {
		if f := &s.Faults[i]; s.ends(f) == never && f.For > 0 {
			at = max(at, f.At+f.For+s.mending())
		}
	}
	for _, e := range s.Events {
		if e.Deed == Stop {
			at = max(at, e.At+e.For+s.mending())
		}
	}
	return at
}

// manySYN is how long TCP needs to ask for a connection so often that some request is surely
// answered.
const manySYN = 30 * time.Second

// slack is how long an operation may take once all ranks have come to it and nothing is wrong:
// queues are short and links slow, and losses are found after a cutoff.
func (s *Scenario) slack() time.Duration {
	for _, f := range s.Faults {
		if f.Share > 0 && f.Flow&Meeting != 0 {
			return 5*time.Second + manySYN
		}
	}
	return 5 * time.Second
}

// law checks what the ranks have seen, and returns the first violation.
func (s *Scenario) law(ranks []*rank) error {
	causes := s.causes()
	for _, r := range ranks {
		for step, o := range r.steps {
			if o.wrong != "" {
				return fmt.Errorf("rank %d, %s: wrong bytes: %s", r.number, s.name(step), o.wrong)
			}
		}
	}
	for _, r := range ranks {
		for step, o := range r.steps {
			switch {
			case o.err == nil || r.departed:
			case len(causes) == 0:
				return fmt.Errorf("rank %d, %s: an error without a cause: %w", r.number, s.name(step), o.err)
			default:
				if err := s.justified(r, step, o.err, causes); err != nil {
					return err
				}
			}
		}
	}
	if err := s.alike(ranks, causes); err != nil {
		return err
	}
	return errors.Join(s.barred(ranks), s.sameBits(ranks), s.returned(ranks), s.noticed(ranks))
}

// sameBits checks that an Allreduce has given all ranks the same sums.
func (s *Scenario) sameBits(ranks []*rank) error {
	for step := range s.steps() {
		var first *rank
		for _, r := range ranks {
			bits := r.steps[step].bits
			if bits == 0 {
				continue
			}
			if first == nil {
				first = r
			} else if first.steps[step].bits != bits {
				return fmt.Errorf("%s: ranks %d and %d have sums of different bits", s.name(step), first.number, r.number)
			}
		}
	}
	return nil
}

// barred checks that no rank has left a Barrier before all had come to it.
func (s *Scenario) barred(ranks []*rank) error {
	for i := range s.Calls {
		for _, r := range ranks {
			o := r.steps[i+1]
			if s.call(r.number, i+1).Kind != Barrier || !o.ended || o.err != nil {
				continue
			}
			for _, other := range ranks {
				if came := other.steps[i+1]; !came.begun || came.at > o.end {
					return fmt.Errorf("rank %d left %s at %v, before rank %d had come to it", r.number, s.name(i+1), o.end,
						other.number)
				}
			}
		}
	}
	return nil
}

// justified checks that an error names what there is.
func (s *Scenario) justified(r *rank, step int, err error, causes []cause) error {
	if step == 0 {
		return s.namesTheDead(r, err, causes)
	}
	var f *group.Fault
	if !errors.As(err, &f) || f.Kind == group.Closed {
		if step == s.steps()-1 {
			return nil // what could not be freed
		}
		return fmt.Errorf("rank %d, %s: the error names no fault: %w", r.number, s.name(step), err)
	}
	for _, c := range causes {
		if slices.Contains(c.alone, r.number) || slices.Contains(c.kind, int(f.Kind)) && slices.Contains(c.ranks, f.Rank) {
			return nil
		}
	}
	return fmt.Errorf("rank %d, %s: the error names something else than what is wrong: %w", r.number, s.name(step), err)
}

// namesTheDead checks what a rank says that cannot join: where one rank is dead, it names that one.
// Paths that do not carry data are found out by ranks that give up, and look dead to others.
func (s *Scenario) namesTheDead(r *rank, err error, causes []cause) error {
	named, ok := group.RankOf(err)
	if !ok || len(causes) != 1 || len(causes[0].ranks) != 1 || causes[0].ranks[0] == r.number ||
		causes[0].ranks[0] == named {
		return nil
	}
	return fmt.Errorf("rank %d, join: the error names rank %d, not the one of %s: %w", r.number, named, causes[0].text,
		err)
}

// alike checks that all ranks are told the same, where one thing alone is wrong and no rank is cut
// off from it.
func (s *Scenario) alike(ranks []*rank, causes []cause) error {
	if len(causes) != 1 || len(causes[0].ranks) != 1 {
		return nil
	}
	var first *group.Fault
	var of int
	for _, r := range ranks {
		if slices.Contains(causes[0].alone, r.number) || r.departed {
			continue
		}
		for step, o := range r.steps {
			var f *group.Fault
			if step == 0 || !errors.As(o.err, &f) || f.Kind == group.Closed {
				continue
			}
			if first == nil {
				first, of = f, r.number
			} else if f.Kind != first.Kind || f.Rank != first.Rank {
				return fmt.Errorf("rank %d is told %q, rank %d %w", of, first.Error(), r.number, f)
			}
		}
	}
	return nil
}

// late returns a violation if an operation should have ended by now.
func (s *Scenario) late(ranks []*rank, now time.Duration) error {
	causes, quiet := s.causes(), s.quiet()
	for step := range s.steps() {
		all, missing := time.Duration(0), false // when the last rank came to it
		for _, r := range ranks {
			o := r.step(step)
			missing = missing || !o.begun && !r.over()
			all = max(all, o.at)
		}
		for _, r := range ranks {
			o := r.step(step)
			if !o.begun || o.ended || r.departed {
				continue
			}
			due := max(all, quiet) + s.slack() + s.switching()
			for _, c := range causes {
				bound := c.bound
				if step == 0 {
					bound = max(bound, joinTimeout+s.Timeout+2*time.Second)
				}
				due = max(due, max(all, c.since, quiet)+bound+s.slack()+s.switching())
			}
			if !missing && now > due {
				return fmt.Errorf("rank %d, %s: does not end: begun at %v, by all at %v, due at %v, now %v", r.number, s.name(step),
					o.at, all, due, now)
			}
		}
	}
	return nil
}

// name says what a step is.
func (s *Scenario) name(step int) string {
	switch {
	case step == 0:
		return "join"
	case step == s.steps()-1:
		return "close"
	}
	if step > len(s.Calls) {
		return "reduce-scatters at Return"
	}
	c := s.Calls[step-1]
	return fmt.Sprintf("call %d, %v of %d bytes", step-1, c.Kind, c.Bytes)
}
