package verbs

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// A device learns that a packet is lost from packets that arrive later (NAK), as TCP does. Nothing comes after the last
// one, so its loss shows by a timer alone, which has to be long: the connection fails after seven timeouts, and that
// must not come before a link is back. So where transfers are not acknowledged, an empty write goes after them, and the
// peer sees nothing of this write. A second one helps where the first, or the answer to it, is lost.
const nudgeAfter = 2 * time.Millisecond // the first, each later one twice as long after the one before

// tail is the state of the last transfers to a peer.
type tail struct {
	watched bool
	done    uint64       // transfers that were complete when the others were looked at first
	rested  owntime.Wait // for how long they are not
	nudges  int          // since then
	due     time.Time    // the next one
}

// untilNudge returns when unacknowledged transfers need action, if that is sooner than in d. It ends streams on which
// nothing has been acknowledged for too long. It does not end them as soon as the device gives up, so that others can
// report a dead host first.
func (s *Streams) untilNudge(d time.Duration, now time.Time) time.Duration {
	for _, p := range s.peers {
		t := &p.tail
		switch {
		case p.err != nil || !p.silent && p.to.posted == p.to.done:
			t.watched = false
			continue
		case !t.watched || t.done != p.to.done:
			*t = tail{watched: true, done: p.to.done, due: now.Add(nudgeAfter)}
		}
		if s.stall > 0 {
			pause := sys.StallPause(s.stall)
			if rested := t.rested.Elapsed(now, 2*pause); p.silent && rested >= s.stall {
				p.fail(&sys.StallError{Segment: s.mtu, For: rested, RDMA: true})
			}
			d = min(d, pause)
		}
		if !p.silent && t.nudges < nudges {
			d = min(d, max(0, t.due.Sub(now)))
		}
	}
	return d
}

// nudge nudges the peers that are due.
func (s *Streams) nudge(now time.Time) {
	for _, p := range s.peers {
		t := &p.tail
		if p.over() || !t.watched || t.done != p.to.done || t.nudges == nudges || now.Before(t.due) ||
			p.to.posted == p.to.done {
			continue
		}
		t.nudges++
		t.due = now.Add(nudgeAfter << t.nudges)
		if p.to.spare() {
			s.batch[0] = ibverbs.Transfer{ID: uint64(p.rank), Verb: ibverbs.Write, LocalKey: s.out.Key(), RemoteKey: p.intro.key}
			p.to.post(0)
			s.post(p, 1)
		}
	}
}
