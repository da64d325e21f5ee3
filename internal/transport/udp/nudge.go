package udp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TCP learns that a segment is lost from segments that arrive later (RFC 8985). Nothing comes after
// the last one, so its loss shows by timers alone: of some round trips, doubled each time, and 200
// ms at least before Linux 6.15 (sys.Take). Credits and repairs are few, one of them is often the
// last for a while, and a root waits for it. So where bytes rest without being acknowledged, a
// message that means nothing goes after them.
const (
	nudgeAfter = 2 * time.Millisecond // the first, each later one twice as long after the one before
	maxNudges  = 5                    // TCP alone repairs a later loss
)

// tail is the state of the last bytes sent to a peer.
type tail struct {
	watched bool // in Edges.tails
	nudges  int  // sent after it
	due     time.Time
}

// watch begins to watch until the bytes sent just now are acknowledged.
func (g *Edges) watch(p *peer) {
	p.tail.nudges, p.tail.due = 0, time.Now().Add(nudgeAfter)
	if !p.tail.watched {
		p.tail.watched = true
		g.tails = append(g.tails, p)
	}
}

// nudge nudges the peers that are due, and drops peers that need no more nudges from the list.
func (g *Edges) nudge(now time.Time) {
	kept := g.tails[:0]
	for _, p := range g.tails {
		if now.Before(p.tail.due) || g.nudged(p, now) {
			kept = append(kept, p)
		} else {
			p.tail.watched = false
		}
	}
	g.tails = kept
}

// nudged nudges a peer, unless that is no use, and reports whether it did.
func (g *Edges) nudged(p *peer, now time.Time) bool {
	t := &p.tail
	if p.line.FD < 0 || t.nudges == maxNudges || len(p.out) > 0 {
		return false // of what is in out, some will be the tail
	}
	g.stats.syscalls.Add(1)
	if n, err := unix.IoctlGetInt(p.line.FD, unix.SIOCOUTQ); err != nil || n == 0 {
		return false // all has been acknowledged; of a lost connection, reading tells
	}
	nudges := t.nudges + 1
	p.push(&wire.Control{Kind: wire.Nudge}, nil)
	g.flush(p)
	t.nudges, t.due = nudges, now.Add(nudgeAfter<<nudges)
	return true
}

// untilNudge returns when a tail is due, if that is sooner than in d.
func (g *Edges) untilNudge(d time.Duration) time.Duration {
	for _, p := range g.tails {
		d = min(d, max(0, time.Until(p.tail.due)))
	}
	return d
}
