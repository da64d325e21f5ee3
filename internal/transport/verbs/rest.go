package verbs

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
)

// Sleep implements fabric.Sleeper.
func (s *Streams) Sleep(d time.Duration) {
	if s.news || s.arm() {
		s.news = false
		return
	}
	s.readReady(s.poller.Wait(s.untilNudge(d, time.Now())))
	s.look()
	s.nudge(time.Now())
}

// arm has the poller report completions from now on, and reports whether there are some already.
func (s *Streams) arm() bool {
	armed := []*ibverbs.Completions{s.receives, s.sends}
	if !s.full {
		armed = armed[:1]
	}
	s.full = false
	for _, c := range armed {
		if err := c.Arm(); err != nil {
			for _, p := range s.peers {
				p.fail(err)
			}
		}
	}
	return s.look()
}

// readReady looks at the messages of other ranks by TCP; completions are looked at anyway.
func (s *Streams) readReady(ready []unix.EpollEvent) {
	for i := range ready {
		if tag := int(ready[i].Fd); tag >= firstRank {
			s.readIntroduction(s.byRank[tag-firstRank])
		}
	}
}

// Wake implements fabric.Sleeper.
func (s *Streams) Wake() { s.poller.Wake() }

// Rest implements fabric.Rester. Arrivals stay where they are until they are asked for, but the end of a rank must be
// noticed. While sent bytes are not acknowledged, or two ranks do not know each other yet, there is something to do.
func (s *Streams) Rest(awake func()) bool {
	s.readReady(s.poller.Ready())
	s.look()
	s.news = false
	for _, p := range s.peers {
		if p.err == nil && (!p.intro.done || p.to.posted > p.to.done) {
			return false
		}
	}
	return s.poller.Rest(awake)
}

// Rouse implements fabric.Rester.
func (s *Streams) Rouse() { s.poller.Rouse() }

// Watch implements fabric.Watched.
func (s *Streams) Watch(d time.Duration, awake func()) time.Duration {
	if s.news || s.arm() {
		s.news = false
		return 0
	}
	if d = s.untilNudge(d, time.Now()); d <= 0 {
		return 0
	}
	return s.poller.RestFor(d, awake)
}

// Unwatch implements fabric.Watched.
func (s *Streams) Unwatch() { s.poller.Rouse() }

// unacknowledged reports whether something that was sent has not arrived at a rank that lives.
func (s *Streams) unacknowledged() bool {
	for _, p := range s.peers {
		if p.queue != nil && !p.over() && p.to.posted > p.to.done {
			return true
		}
	}
	return false
}
