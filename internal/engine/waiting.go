package engine

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
)

// Waiting says what the oldest operation of a gather lane waits for.
type Waiting struct {
	multicast.Waiting
	At time.Duration // when the lane was looked at, by the engine's clock
	// Idle is for how long nothing of the operation had happened then. A driver that did not run
	// meanwhile has not looked: one look proves nothing, two with rounds between them do.
	Idle time.Duration
}

// Waiting returns what the oldest operation waited for when the lane's driver last looked, or nil
// if none was in flight, and has the driver look again. Whoever watches calls it time and again,
// from any goroutine; what it returns is as old as the call before. It costs the driver nothing
// between calls.
func (g *Gather) Waiting() *Waiting {
	w := g.waiting.Load()
	g.asked.Store(true)
	g.fab.Wake()
	return w
}

// publish answers Waiting.
func (g *Gather) publish() {
	g.asked.Store(false)
	if w, ok := g.comm.Waiting(); ok {
		g.waiting.Store(&Waiting{Waiting: w, At: g.now, Idle: g.now - w.Moved})
	} else {
		g.waiting.Store(nil)
	}
}
