package world

import (
	"fmt"
	"time"
)

// reach is how long ranks try to join one switch when they first reduce, or wait for one that is
// silent, at most beyond MCAST_SWITCH_TIMEOUT: docs/reference/faults.md says so.
const reach = time.Second

// back is how long it takes all ranks, at most, to be together at a switch that works again: the
// longest pause between attempts, what the node waits for the last rank, and an attempt.
const back = 90 * time.Second

// switching is how much longer an operation may take because of switches. Each trouble of one costs a
// silence of MCAST_SWITCH_TIMEOUT, and so does the first reduction at each switch that is named.
func (s *Scenario) switching() time.Duration {
	if len(s.Nodes) == 0 {
		return 0
	}
	n := len(s.Ways)
	for i := range s.Faults {
		if s.troubles(&s.Faults[i]) {
			n++
		}
	}
	n += len(s.Events)
	return time.Duration(n) * (s.SwitchTimeout + reach)
}

// troubles reports whether a fault is on the way between a rank and a node, or between nodes.
func (s *Scenario) troubles(f *Fault) bool {
	return f.What != Drop || f.Flow&Switch != 0
}

// node reports whether a host is a node's.
func (s *Scenario) node(host int) bool { return host >= s.Net.Ranks }

// calm is when the last trouble of switches is over; never false if some lasts.
func (s *Scenario) calm() (at time.Duration, ever bool) {
	for _, n := range s.Nodes {
		at = max(at, n.Appears)
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; s.troubles(f) && f.Share == 0 {
			if f.For == 0 {
				return 0, false
			}
			at = max(at, f.At+f.For)
		}
	}
	for _, e := range s.Events {
		if s.node(e.Rank) && e.For == 0 || !s.node(e.Rank) && e.Deed != Stop {
			return 0, false
		}
		at = max(at, e.At+e.For)
	}
	return at, true
}

// returned checks that operations went through a switch at the end, where all is well again.
func (s *Scenario) returned(ranks []*rank) error {
	at, ever := s.calm()
	if !ever || s.Return < at+back || len(s.Ways) != 1 || len(s.causes()) > 0 {
		return nil
	}
	for _, r := range ranks {
		if r.before < 0 || s.surplus(r.number) {
			continue // it did not come so far, which its errors tell; or others reduce for it
		}
		if r.after <= r.before {
			return fmt.Errorf("rank %d: of %d Reduce-Scatters from %v on none went through a switch; way: %s", r.number,
				returning, s.Return, r.way)
		}
	}
	return nil
}
