package multicast

import "time"

// Multicast may cease to reach a rank at any time, and come back: an Ethernet switch that snoops IGMP forgets the
// group, or is restarted. Each rank sees for itself which roots it does not hear: their chunks come by repair alone,
// and for a while. It then wants everything relayed, and says so in each barrier and with each credit that it gives; a
// rank that has heard of one that wants it relays. A barrier in which none does ends that at once.
//
// A root that relays multicasts a chunk as well now and then, a probe, less and less often. A rank that
// hears the probes of a root hears that root again.

const (
	// unheardChunks must have come of a root by repair, and none by multicast, for unheardTime at
	// least: then its multicast does not arrive.
	unheardChunks = 16
	unheardTime   = 100 * time.Millisecond
	// wantedFor is how long a rank goes on to relay after others have wanted it, where no barrier
	// tells.
	wantedFor = 10 * time.Second
	// A root waits so long before its first probe, and twice as long before each further one. It
	// begins anew when it has not relayed for as long as it waits at most.
	firstProbe = 500 * time.Millisecond
	mostProbe  = 30 * time.Second
	// unheardProbes in a row, by relay alone, show that a root is not heard: one may have been lost.
	unheardProbes = 2
	// deafFor is how long a rank wants chunks relayed after the last one of a root that it does not
	// hear: that root may have nothing to send any more.
	deafFor = 2 * mostProbe
	// lately is how long after a chunk was relayed those before it may still be on their way.
	lately = time.Second
)

// hearing is whom this rank hears, and whether ranks want chunks relayed.
type hearing struct {
	roots  []ear
	known  int  // roots with chunks that have come by repair or relay
	deaf   int  // known roots that are not heard
	start  bool // it began as deaf to all
	always bool
	last   Time // when a chunk of a root that is not heard came; of who began deaf, when it was first asked
	wanted Time // until when others want it

	probeAt Time
	pause   time.Duration
	relayed Time // when something was last relayed from here
}

// ear is how one root's chunks come.
type ear struct {
	known  bool // some have come by repair or relay
	deaf   bool // multicast does not bring them
	missed int  // chunks that came by repair since one came otherwise
	since  Time // when the first of them came
	heard  Time // when one last came by multicast
	relay  Time // when one last came by relay
	probe  Time // when the last probe came by relay
	silent int  // probes in a row that came by relay alone
}

// newHearing returns the state of a rank. start says that not all ranks hear each other's multicast
// at first.
func newHearing(size int, start bool) hearing {
	h := hearing{roots: make([]ear, size), start: start}
	for r := range h.roots {
		h.roots[r].deaf = start
	}
	return h
}

// wants reports whether this rank wants chunks relayed: it does not hear a root that sends, or it began as deaf to all
// and has learned nothing since.
func (h *hearing) wants(now Time) bool {
	knowsNothing := h.start && h.known == 0
	if knowsNothing && h.last == 0 {
		h.last = now
	}
	return h.always || (h.deaf > 0 || knowsNothing) && now-h.last < deafFor
}

// relays reports whether this rank relays its chunks: it, or another rank, wants that.
func (h *hearing) relays(now Time) bool { return h.wants(now) || now < h.wanted }

// know notes that a chunk of a root came by repair or relay.
func (h *hearing) know(now Time, e *ear) {
	if e.deaf {
		h.last = now
	}
	if !e.known {
		e.known = true
		h.known++
		if e.deaf {
			h.deaf++
		}
	}
}

// set notes whether a root is heard.
func (h *hearing) set(e *ear, deaf bool) {
	switch {
	case e.deaf == deaf:
		return
	case !e.known:
	case deaf:
		h.deaf++
	default:
		h.deaf--
	}
	e.deaf = deaf
}

// multicast notes that a chunk of a root came by multicast, whether it was needed or not.
func (h *hearing) multicast(now Time, root int) {
	e := &h.roots[root]
	e.heard, e.missed, e.silent = now, 0, 0
	h.set(e, false)
}

// repair notes that a chunk of a root came by repair alone.
func (h *hearing) repair(now Time, root int) {
	e := &h.roots[root]
	h.know(now, e)
	if e.missed++; e.missed == 1 {
		e.since = now
	}
	if e.missed >= unheardChunks && now-e.since >= unheardTime && !e.deaf {
		h.set(e, true)
		h.last, e.probe = now, now
	}
}

// relaysLately reports whether chunks of a root that have not come may be on their way by relay.
func (h *hearing) relaysLately(now Time, root int) bool {
	e := &h.roots[root]
	return e.relay > 0 && now-e.relay < lately
}

// relay notes that a chunk of a root came by relay. If it is a probe, as the last one was, and nothing
// has come by multicast in between, the root is not heard.
func (h *hearing) relay(now Time, root int, probe bool) {
	e := &h.roots[root]
	h.know(now, e)
	e.relay, e.missed = max(now, 1), 0
	if !probe {
		return
	}
	if e.heard <= e.probe {
		e.silent++
	}
	if e.silent >= unheardProbes {
		h.set(e, true)
		h.last = now
	}
	e.probe = now
}

// want notes whether a barrier has shown that a rank wants chunks relayed, or that none does.
func (h *hearing) want(now Time, wanted bool) {
	h.wanted = 0
	if wanted {
		h.wanted = now + wantedFor
	}
}

// due reports whether a chunk that this rank relays is to be multicast, too.
func (h *hearing) due(now Time) bool {
	if h.always {
		return false
	}
	switch {
	case h.relayed == 0:
		h.pause, h.probeAt = firstProbe, now+firstProbe
	case now-h.relayed >= mostProbe:
		h.pause, h.probeAt = firstProbe, min(h.probeAt, now+firstProbe)
	}
	h.relayed = max(now, 1)
	return now >= h.probeAt
}

// probed notes that one was.
func (h *hearing) probed(now Time) {
	h.pause = min(2*h.pause, mostProbe)
	h.probeAt = now + h.pause
}
