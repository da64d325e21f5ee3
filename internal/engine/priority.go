package engine

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Priority says whether a group goes in the foreground or in the background, and by which link the groups that share a
// host's link learn this.
type Priority struct {
	Background bool
	Link       fabric.Link // nil: nobody shares anything
}

// priority is a lane's: one of the two, or neither.
type priority struct {
	foreground *fabric.Foreground
	background *fabric.Background
}

func (c Priority) open() priority {
	switch {
	case c.Link == nil:
		return priority{}
	case c.Background:
		return priority{background: &fabric.Background{Link: c.Link}}
	}
	return priority{foreground: &fabric.Foreground{Link: c.Link}}
}

// sooner returns the earlier of two moments. Either may be missing.
func sooner(at time.Duration, ok bool, look time.Duration, waits bool) (time.Duration, bool) {
	if waits && (!ok || look < at) {
		return look, true
	}
	return at, ok
}

// reportMoved says that operations of a group in the foreground move, after a round in which something did.
func (g *Gather) reportMoved() {
	if g.InFlight() > 0 && g.priority.foreground.Moves(g.now) {
		g.priority.foreground.Report(g.carried)
	}
}

// reportMoved says the same of a Reduce lane.
func (r *Reduce) reportMoved() {
	if r.InFlight() > 0 && r.priority.foreground.Moves(r.clock()) {
		s := r.Stats()
		r.priority.foreground.Report(s.SentBytes + s.ReceivedBytes)
	}
}

// direct moves direct operations: as much as a group in the background may send.
func (r *Reduce) direct() bool {
	back := r.priority.background
	if back == nil || !r.lane.Directly() {
		return r.lane.Work(true)
	}
	s := r.streams.Load()
	before := s.Stats().SentBytes
	busy := r.lane.Work(!back.Must(r.clock()))
	back.Sent(int(s.Stats().SentBytes - before))
	return busy
}
