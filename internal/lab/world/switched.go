package world

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Switched returns the scenario with aggregation nodes of a seed.
func Switched(seed uint64) Scenario {
	d := draw{rand.New(rand.NewPCG(seed, 0x737769746368))}
	s := Scenario{
		Seed:          seed,
		Net:           d.network(seed, 2+d.IntN(5)),
		Timeout:       of(d, 2*time.Second, 5*time.Second, 30*time.Second),
		SwitchTimeout: of(d, 500*time.Millisecond, time.Second, 3*time.Second),
		Pause: of(d, 0, d.between(0, 5*time.Millisecond), d.between(0, 100*time.Millisecond),
			d.between(0, 2*time.Second)),
		Fast: d.chance(0.3),
	}
	s.together(seed)
	d.nodes(&s)
	for range 20 + d.IntN(60) {
		c := d.call(&s)
		if d.chance(0.5) {
			c.Kind = of(d, ReduceScatter, ReduceScatter, Reduce, Allreduce)
		}
		s.Calls = append(s.Calls, c)
	}
	if d.chance(0.3) {
		s.Late = append(s.Late, Late{d.IntN(s.Net.Ranks), d.step(&s), d.between(0, 10*time.Second)})
	}
	if d.chance(0.2) {
		s.Slow = append(s.Slow, Slow{d.IntN(s.Net.Ranks), d.between(0, 200*time.Millisecond)})
	}
	d.trouble(&s)
	if d.chance(0.5) {
		at, _ := s.calm()
		s.Return = at + back + d.between(0, 10*time.Second)
	}
	s.floats(seed, 0.5)
	s.enlarge(seed)
	s.differ(seed)
	if !s.Fit() {
		panic(fmt.Sprintf("seed %d draws a scenario that cannot be run: %v", seed, &s))
	}
	return s
}

// nodes draws the nodes that there are, and the ones that each rank names.
func (d draw) nodes(s *Scenario) {
	child := Node{Parent: 1}
	switch d.IntN(6) {
	case 0, 1:
		s.Nodes, s.Ways = []Node{{}}, [][]int{{0}}
	case 2: // one takes over from the other
		s.Nodes, s.Ways = []Node{{}, {}}, [][]int{{0}, {1}}
	case 3: // some ranks have joined the leaf, or all
		s.Nodes, s.Ways = []Node{{}, child}, of(d, [][]int{{0, 1}}, [][]int{{1}})
	case 4:
		s.Nodes, s.Ways = []Node{{}, child, child}, [][]int{{1, 2}}
	case 5: // a tree, from which another node takes over
		s.Nodes, s.Ways = []Node{{}, child, {}}, of(d, [][]int{{1}, {2}}, [][]int{{0, 1}, {2}})
	}
	sealed := d.chance(0.3)
	for i := range s.Nodes {
		s.Nodes[i].Workers, s.Nodes[i].Secret = 1+d.IntN(2), sealed
	}
	s.Net.Nodes = len(s.Nodes)
}

// trouble draws what goes wrong.
func (d draw) trouble(s *Scenario) {
	switch d.IntN(10) {
	case 0: // nothing
	case 1, 2:
		for range 1 + d.IntN(2) {
			s.Events = append(s.Events, d.outage(s))
		}
		s.sortEvents()
	case 3:
		s.Nodes[d.IntN(len(s.Nodes))].Appears = d.between(0, 20*time.Second)
	case 4, 5, 6:
		for range 1 + d.IntN(2) {
			s.add(d.branch(s))
		}
	case 7:
		for range 1 + d.IntN(2) {
			s.add(d.ofNode(s))
		}
	case 8:
		for range 1 + d.IntN(2) {
			f := d.transient(s)
			if f.To == Anybody && f.Flow == Every {
				f.Flow |= Switch
			}
			s.add(f)
		}
	case 9:
		if d.chance(0.5) {
			s.Events = append(s.Events, d.event(s))
		} else {
			s.add(d.permanent(s))
		}
	}
}

// outage draws how a node ends, and whether it comes back.
func (d draw) outage(s *Scenario) Event {
	e := Event{Rank: s.Net.Ranks + d.IntN(len(s.Nodes)), Deed: of(d, Kill, Kill, Crash, Stop, Leave), At: d.during(s)}
	e.For = d.between(time.Millisecond, 20*time.Second)
	if e.Deed != Stop && d.chance(0.3) {
		e.For = 0
	}
	return e
}

// sortEvents brings events into the order of time in which nodes take them.
func (s *Scenario) sortEvents() {
	for i := range s.Events {
		for k := i; k > 0 && s.Events[k].At < s.Events[k-1].At; k-- {
			s.Events[k], s.Events[k-1] = s.Events[k-1], s.Events[k]
		}
	}
}

// branch draws a fault between a rank and its node, or between a node and its parent.
func (d draw) branch(s *Scenario) Fault {
	rank := d.IntN(s.Net.Ranks)
	way := of(d, s.Ways...)
	f := Fault{What: Drop, At: d.during(s), From: rank, To: s.Net.Ranks + way[rank%len(way)], Both: d.chance(0.3)}
	if d.chance(0.5) {
		for i, n := range s.Nodes {
			if n.Parent > 0 && d.chance(0.7) {
				f.From, f.To = s.Net.Ranks+i, s.Net.Ranks+n.Parent-1
			}
		}
	}
	if d.chance(0.5) {
		f.From, f.To = f.To, f.From
	}
	if d.chance(0.4) {
		f.At = 0
	}
	f.For = of(d, 0, 0, d.between(time.Millisecond, 10*time.Second))
	f.Flow = of(d, Slots, Slots, Slots, Session, Switch)
	if f.Flow == Slots && d.chance(0.5) { // elements do not pass, polls do
		f.Least = 200 + d.IntN(s.Net.MTU-200)
	}
	if d.chance(0.15) {
		f.Share = d.Float64() * 0.2
	}
	return f
}

// ofNode draws a fault of a node itself, or of everything that is sent to it.
func (d draw) ofNode(s *Scenario) Fault {
	f := Fault{What: Drop, At: d.during(s), From: s.Net.Ranks + d.IntN(len(s.Nodes)), To: Anybody}
	f.For = of(d, 0, d.between(time.Millisecond, 10*time.Second))
	switch d.IntN(6) {
	case 5:
		f.What, f.For = Congested, d.between(time.Millisecond, 5*time.Second)
		f.From = d.IntN(s.Net.Ranks + len(s.Nodes))
	case 0:
		f.What, f.For = Descriptors, d.between(time.Millisecond, 10*time.Second)
	case 1:
		f.What = of(d, Refused, Unreachable)
	case 2:
		f.What, f.Least = Narrow, 200+d.IntN(s.Net.MTU-200)
	case 3: // its link is down
		f.Both, f.Flow = true, Switch
	case 4: // a bad cable
		f.Flow, f.Both, f.Share = of(d, Slots, Switch), true, d.Float64()*0.1
	}
	return f
}
