package world

import (
	"sync/atomic"
	"time"
)

// pulse tells a run that is slow from one that is busy without end. A goroutine that is busy without end
// keeps virtual time from passing, so that nobody inside the bubble can notice; how long a run takes says
// nothing, for the machine may be busy with something else.
type pulse struct {
	beats atomic.Uint64
	seen  uint64 // of beats, when somebody last asked
}

const (
	// beat is how often a run shows that virtual time passes.
	beat = 500 * time.Millisecond
	// endless is how long one beat may take, which is a matter of milliseconds.
	endless = time.Minute
	// eternity is after how much virtual time a run shows nothing any more: none takes so long.
	eternity = time.Hour
)

// start has the pulse beat until stop is called. Both are called in the bubble.
func (p *pulse) start() (stop func()) {
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for range eternity / beat {
			select {
			case <-tick.C:
				p.beats.Add(1)
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// stands reports whether there was no beat since it was last asked.
func (p *pulse) stands() bool {
	before := p.seen
	p.seen = p.beats.Load()
	return p.seen == before
}

// watch calls found, if the pulse stands for endless, until stop is called. Both are called outside.
func (p *pulse) watch(found func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(endless)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if p.stands() {
					found()
					return
				}
			}
		}
	}()
	return func() { close(over) }
}
