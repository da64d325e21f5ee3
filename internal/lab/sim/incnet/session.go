package incnet

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// errTold ends the operations in flight where another rank has crashed.
var errTold = errors.New("another rank has crashed")

// crashNode makes a node forget everything; the ranks notice one by one.
func (s *sim) crashNode(c Crash) {
	stages := s.nodes[c.Who]
	if stages[0].dead || s.failing {
		return
	}
	kill(stages)
	session := s.session
	for _, r := range s.ranks {
		s.after(upTo(s.rng, c.Detect), func() { r.leave(session) })
	}
}

// kill ends all stages of a node: they take nothing and send nothing.
func kill(stages []*stage) {
	for _, st := range stages {
		st.dead = true
	}
}

// leave ends a session at a rank, whether the rank has joined it yet or not. When all have left it,
// the ranks tell each other which results they hold and go on directly, one by one.
func (r *rank) leave(session int) {
	s := r.s
	if r.ended() || r.left >= session {
		return
	}
	r.left = session
	record, _ := r.reduce.Stop(uint32(session))
	r.path = nil
	s.records[r.number] = record
	r.round()
	if s.leaving++; s.leaving < len(s.ranks) {
		return
	}
	for _, stages := range s.nodes {
		kill(stages)
	}
	s.leaving = 0
	records := s.records
	s.records = make([][]byte, len(s.ranks))
	for _, r := range s.ranks {
		s.after(upTo(s.rng, s.Skew), func() { r.resume(records) })
	}
}

// resume goes on directly. When all do, a new session begins.
func (r *rank) resume(records [][]byte) {
	s := r.s
	if r.ended() {
		return
	}
	if err := r.reduce.Resume(records, r.streams); err != nil {
		s.fail("rank %d: %w", r.number, err)
		return
	}
	r.round()
	if s.resumed++; s.resumed == len(s.ranks) && !s.failing {
		s.resumed = 0
		s.account()
		s.open()
	}
}

// join makes a rank a member of a session, unless that has ended by now.
func (r *rank) join(session int, t innetwork.Terms) {
	if r.ended() || r.left >= session {
		return
	}
	c := r.connect(session, t)
	if session == 1 {
		r.reduce.Begin(1, c, nil)
	} else {
		r.reduce.Join(c)
	}
	r.round()
}

// crashRank ends a rank; the others are told one by one, and end.
func (s *sim) crashRank(c *Crash) {
	if s.ranks[c.Who].completed == len(s.Ops) {
		return
	}
	s.failing = true
	s.ranks[c.Who].crashed = true
	for _, r := range s.ranks {
		s.after(upTo(s.rng, c.Detect), func() {
			if r.ended() {
				return
			}
			r.told = true
			r.reduce.Fail(errTold)
			r.round()
			if n := r.reduce.InFlight(); n > 0 {
				s.fail("rank %d: %d operations do not end although the group has", r.number, n)
			}
		})
	}
}
