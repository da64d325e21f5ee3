package world

import (
	"fmt"
	"math/rand/v2"
	"time"
)

func (d draw) network(seed uint64, ranks int) Config {
	return Config{
		Ranks: ranks, Seed: seed, Delay: d.between(time.Microsecond, 200*time.Microsecond),
		Rate: of(d, 0, 1.25e9, 125e6), MTU: of(d, 1500, 1500, 9000), Queue: of(d, 32, 256, 1024),
	}
}

// Random returns the scenario of a seed.
func Random(seed uint64) Scenario {
	d := draw{rand.New(rand.NewPCG(seed, 0x6c697665))}
	s := Scenario{
		Seed:    seed,
		Net:     d.network(seed, 2+d.IntN(7)),
		Timeout: of(d, 2*time.Second, 5*time.Second, 30*time.Second),
		Chains:  of(d, 0, 0, 1, 2),
		Pause:   of(d, 0, d.between(0, time.Millisecond), d.between(0, 100*time.Millisecond)),
	}
	s.together(seed)
	for range 20 + d.IntN(80) {
		s.Calls = append(s.Calls, d.call(&s))
	}
	if d.chance(0.5) {
		for range 1 + d.IntN(2) {
			s.Late = append(s.Late, Late{d.IntN(s.Net.Ranks), d.step(&s), d.between(0, 10*time.Second)})
		}
	}
	switch d.IntN(10) {
	case 0, 1: // nothing is wrong
	case 2, 3, 4, 5:
		for range 1 + d.IntN(3) {
			s.add(d.transient(&s))
		}
	case 6, 7:
		s.add(d.permanent(&s))
	default:
		s.Events = append(s.Events, d.event(&s))
	}
	s.floats(seed, 0.3)
	s.enlarge(seed)
	s.share(seed)
	s.differ(seed)
	s.exchange(seed)
	s.pull(seed)
	if !s.Fit() {
		panic(fmt.Sprintf("seed %d draws a scenario that cannot be run: %v", seed, &s))
	}
	return s
}

// add adds a fault, if its consequences are clear.
func (s *Scenario) add(f Fault) {
	if s.ends(&f) != maybe {
		s.Faults = append(s.Faults, f)
	}
}

// pull lets, in half of the seeds, ranks read the chunks they miss, has some ranks register their buffers, and some
// datagrams come late or twice.
func (s *Scenario) pull(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x70756c6c))}
	if d.chance(0.5) {
		s.Net.Reads, s.Registered, s.Net.Stray = 1+d.IntN(8), 1+d.IntN(s.Net.Ranks), of(d, 0, 0.01, 0.1)
	}
}

// exchange has, in a quarter of the seeds, some calls be messages from rank to rank.
func (s *Scenario) exchange(seed uint64) {
	d := draw{rand.New(rand.NewPCG(seed, 0x6d736773))}
	if d.chance(0.75) || len(s.Odds) > 0 {
		return
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; d.chance(0.4) {
			*c = Call{Kind: of(d, Shift, AllToAll), Bytes: c.Bytes, Async: c.Async}
		}
	}
}

// step draws one at which a rank is late: to join, first calls, and in the middle.
func (d draw) step(s *Scenario) int {
	return of(d, 0, 1, 2, d.IntN(s.steps()), d.IntN(s.steps()), s.steps()-1)
}

func (d draw) call(s *Scenario) Call {
	c := Call{Kind: Kind(d.IntN(int(kinds))), Root: d.IntN(s.Net.Ranks), Async: d.chance(0.3)}
	switch d.IntN(20) {
	case 0:
		c.Bytes = d.IntN(200_000) / s.Net.Ranks
	case 1, 2, 3:
		c.Bytes = d.IntN(20_000)
	case 4:
		c.Bytes = 0
	default:
		c.Bytes = d.IntN(500)
	}
	if c.Kind == Barrier {
		c.Bytes = 0
	}
	return c
}

// during draws a moment at which the group probably works, or joins.
func (d draw) during(s *Scenario) time.Duration {
	first := s.lateness(0, 0)
	for r := range s.Net.Ranks {
		first = max(first, s.lateness(r, 0))
	}
	if d.chance(0.2) {
		return d.between(0, first+time.Millisecond)
	}
	length := time.Duration(len(s.Calls)) * (s.Pause + time.Millisecond)
	return first + d.between(0, length)
}

// pair draws two ranks, on two hosts if there are.
func (d draw) pair(s *Scenario) (from, to int) {
	from = d.IntN(s.Net.Ranks)
	to = (from + 1 + d.IntN(s.Net.Ranks-1)) % s.Net.Ranks
	for s.Net.place(to) == s.Net.place(from) && len(s.hosts()) > 1 {
		to = (to + 1) % s.Net.Ranks
	}
	return from, to
}

// transient draws a fault that no group may end by.
func (d draw) transient(s *Scenario) Fault {
	from, to := d.pair(s)
	f := Fault{What: Drop, At: d.during(s), From: from, To: to, Both: d.chance(0.5)}
	short := min(5*time.Second, s.Timeout*2/3-s.mending())
	f.For = d.between(time.Millisecond, max(2*time.Millisecond, short))
	switch d.IntN(8) {
	case 0: // a link is down
		f.To, f.Both, f.Flow = Anybody, true, Every
	case 1: // a path is
		f.Flow = of(d, Every, Data, Control, Stream, Control|Stream)
	case 2: // a bad cable
		f.To, f.Flow, f.For, f.Share = of(d, Anybody, to), of(d, Every, Every&^Meeting), 0, d.Float64()*0.1
	case 3: // no multicast
		f.From, f.Flow, f.For = of(d, from, Anybody), Multicast, of(d, 0, f.For)
	case 4: // large packets only
		f.Flow, f.Least = Data, leastHole+d.IntN(s.Net.MTU)
	case 5:
		f.What, f.For = Descriptors, d.between(time.Millisecond, 10*time.Second)
	case 6:
		f.What, f.For = Refused, of(d, 0, f.For)
	case 7:
		f.What, f.For = Unreachable, of(d, 0, f.For)
	}
	return f
}

// permanent draws a fault that data may need mended.
func (d draw) permanent(s *Scenario) Fault {
	from, to := d.pair(s)
	f := Fault{What: Drop, At: d.during(s), From: from, To: to, Both: d.chance(0.5)}
	switch d.IntN(6) {
	case 0: // cut off
		f.To, f.Both, f.Flow = Anybody, true, Every
	case 1: // one direction of everything
		f.Flow = Every
	case 2: // the data path, while ranks see each other alive
		f.Flow = Data
	case 3: // one connection
		f.Flow = of(d, Control, Stream)
	case 4: // by size, towards one host or from it
		f.To, f.Flow, f.Least = of(d, Anybody, to), Every, leastHole+d.IntN(s.Net.MTU-leastHole)
	case 5: // by size, from the beginning
		f.At, f.To, f.Flow, f.Least = 0, Anybody, Every, leastHole+d.IntN(s.Net.MTU-leastHole)
	}
	return f
}

func (d draw) event(s *Scenario) Event {
	e := Event{
		Rank: d.IntN(s.Net.Ranks), Deed: 1 + Deed(d.IntN(int(deeds)-1)), At: d.during(s), Step: 1 + d.IntN(len(s.Calls)),
	}
	switch e.Deed {
	case Stop:
		e.For = of(d, d.between(0, s.Timeout), d.between(s.Timeout*3/2, 2*s.Timeout))
	case Abort, Leave:
		e.At = 0
	case Kill, Crash:
		e.Step = 0
	}
	return e
}
