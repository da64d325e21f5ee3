package multicast

import "time"

// Multicast may cease to reach a rank at any time, and come back: an Ethernet switch that snoops IGMP forgets the
// group, or is restarted. Each rank sees for itself which roots do not reach it: their chunks come by repair alone,
// and for a while. It then wants everything relayed. It says so in each barrier and with each credit that it gives, and
// every rank that learns of it relays. A barrier in which no rank wants that ends it at once.
//
// A root that relays multicasts a chunk as well now and then, a probe, less and less often. When the probes of a root
// reach a rank, its multicast does again.

const (
	// unreachedChunks must have come from a root by repair, and none by multicast, for unreachedTime at least: then its
	// multicast does not arrive.
	unreachedChunks = 16
	unreachedTime   = 100 * time.Millisecond
	// unreachedProbes in a row, by relay alone, show that multicast does not arrive: one may have been lost.
	unreachedProbes = 2
	// unreachedFor is how long a rank wants chunks relayed after the last one of a root that does not reach it: that root
	// may have nothing to send any more.
	unreachedFor = 2 * mostProbe
	// wantedFor is how long a rank goes on to relay after others have wanted it, where no barrier tells.
	wantedFor = 10 * time.Second
	// A root waits so long before its first probe, and twice as long before each further one. It begins anew when it has
	// not relayed for as long as it waits at most.
	firstProbe = 500 * time.Millisecond
	mostProbe  = 30 * time.Second
	// lately is how long after a chunk was relayed the ones before it may still be on their way.
	lately = time.Second
)

// reachability is which roots reach this rank by multicast, and whether ranks want chunks relayed.
type reachability struct {
	roots     []source
	known     int  // roots with chunks that have come by repair or relay
	unreached int  // known roots that do not reach this rank
	none      bool // at first no root is taken to reach it
	always    bool // see Comm.Relay
	last      Time // when a chunk of a root that does not reach it came; with none, when wants was first called
	wanted    Time // until when others want chunks relayed

	probeAt Time
	pause   time.Duration
	relayed Time // when something was last relayed from here
}

// source is how the chunks of one root come.
type source struct {
	known     bool // some have come by repair or relay
	unreached bool // multicast does not bring them
	repaired  int  // chunks that came by repair since one came by multicast or relay
	since     Time // when the first of them came
	multicast Time // when one last came by multicast
	relayed   Time // when one last came by relay
	probed    Time // when the last probe came by relay
	missed    int  // probes in a row that came by relay alone
}

// newReachability returns the state of a rank. none says that not all ranks reach each other by multicast at first.
func newReachability(size int, none bool) reachability {
	r := reachability{roots: make([]source, size), none: none}
	for root := range r.roots {
		r.roots[root].unreached = none
	}
	return r
}

// wants reports whether this rank wants chunks relayed: a root that sends does not reach it, or none was taken to at
// first and nothing has come since.
func (r *reachability) wants(now Time) bool {
	knowsNothing := r.none && r.known == 0
	if knowsNothing && r.last == 0 {
		r.last = now
	}
	return r.always || (r.unreached > 0 || knowsNothing) && now-r.last < unreachedFor
}

// relays reports whether this rank relays its chunks: it, or another rank, wants that.
func (r *reachability) relays(now Time) bool { return r.wants(now) || now < r.wanted }

// know notes that a chunk of a root came by repair or relay.
func (r *reachability) know(now Time, s *source) {
	if s.unreached {
		r.last = now
	}
	if !s.known {
		s.known = true
		r.known++
		if s.unreached {
			r.unreached++
		}
	}
}

// set notes whether multicast brings a root's chunks.
func (r *reachability) set(s *source, unreached bool) {
	switch {
	case s.unreached == unreached:
		return
	case !s.known:
	case unreached:
		r.unreached++
	default:
		r.unreached--
	}
	s.unreached = unreached
}

// multicast notes that a chunk of a root came by multicast, whether it was needed or not.
func (r *reachability) multicast(now Time, root int) {
	s := &r.roots[root]
	s.multicast, s.repaired, s.missed = now, 0, 0
	r.set(s, false)
}

// repair notes that a chunk of a root came by repair alone.
func (r *reachability) repair(now Time, root int) {
	s := &r.roots[root]
	r.know(now, s)
	if s.repaired++; s.repaired == 1 {
		s.since = now
	}
	if s.repaired >= unreachedChunks && now-s.since >= unreachedTime && !s.unreached {
		r.set(s, true)
		r.last, s.probed = now, now
	}
}

// relaysLately reports whether chunks of a root that have not come may be on their way by relay.
func (r *reachability) relaysLately(now Time, root int) bool {
	s := &r.roots[root]
	return s.relayed > 0 && now-s.relayed < lately
}

// relay notes that a chunk of a root came by relay. If it is a probe, as the last one was, and nothing has come by
// multicast in between, the root does not reach this rank.
func (r *reachability) relay(now Time, root int, probe bool) {
	s := &r.roots[root]
	r.know(now, s)
	s.relayed, s.repaired = max(now, 1), 0
	if !probe {
		return
	}
	if s.multicast <= s.probed {
		s.missed++
	}
	if s.missed >= unreachedProbes {
		r.set(s, true)
		r.last = now
	}
	s.probed = now
}

// want notes whether a barrier has shown that a rank wants chunks relayed, or that none does.
func (r *reachability) want(now Time, wanted bool) {
	r.wanted = 0
	if wanted {
		r.wanted = now + wantedFor
	}
}

// due reports whether a chunk that this rank relays is to be multicast, too.
func (r *reachability) due(now Time) bool {
	if r.always {
		return false
	}
	switch {
	case r.relayed == 0:
		r.pause, r.probeAt = firstProbe, now+firstProbe
	case now-r.relayed >= mostProbe:
		r.pause, r.probeAt = firstProbe, min(r.probeAt, now+firstProbe)
	}
	r.relayed = max(now, 1)
	return now >= r.probeAt
}

// probed notes that one was.
func (r *reachability) probed(now Time) {
	r.pause = min(2*r.pause, mostProbe)
	r.probeAt = now + r.pause
}
