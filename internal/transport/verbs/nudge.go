package verbs

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
)

// A device learns that a packet is lost from those that arrive after it (NAK), as TCP does. Nothing comes after the last one, so
// its loss shows by a timer alone, which has to be long: the connection fails after seven of them, and that must not come before
// a link is back. So where transfers are not acknowledged, an empty write goes after them, which the peer sees nothing of. A second
// one helps where the first is lost, or what is answered to it.
const nudgeAfter = 2 * time.Millisecond // the first, each later one twice as long after the one before

// tail is the end of what a peer was sent.
type tail struct {
	done   uint64 // transfers that were complete when due was set
	nudges int    // since then
	due    time.Time
}

// untilNudge returns when a nudge is due, if that is sooner than in d.
func (s *Streams) untilNudge(d time.Duration) time.Duration {
	now := time.Now()
	for _, p := range s.peers {
		t := &p.tail
		switch {
		case p.err != nil || p.to.posted == p.to.done:
			t.due = time.Time{}
			continue
		case t.due.IsZero() || t.done != p.to.done:
			*t = tail{done: p.to.done, due: now.Add(nudgeAfter)}
		case t.nudges == nudges:
			continue
		}
		d = min(d, max(0, t.due.Sub(now)))
	}
	return d
}

// nudge nudges the peers that are due.
func (s *Streams) nudge(now time.Time) {
	for _, p := range s.peers {
		t := &p.tail
		if p.err != nil || t.due.IsZero() || now.Before(t.due) || t.nudges == nudges || t.done != p.to.done || p.to.posted == p.to.done {
			continue
		}
		t.nudges++
		t.due = now.Add(nudgeAfter << t.nudges)
		if !p.to.spare() {
			continue
		}
		s.batch[0] = ibverbs.Transfer{ID: uint64(p.rank), Verb: ibverbs.Write, LocalKey: s.out.Key(), RemoteKey: p.intro.key}
		p.to.post(0)
		s.post(p, 1)
	}
}
