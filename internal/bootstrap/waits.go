package bootstrap

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// A join may wait as long as MCAST_JOIN_TIMEOUT: whom it waits for, and why, is said meanwhile.

// tellEvery is how often a join looks whom it waits for. What has not changed is said again each time that the wait has
// doubled.
const tellEvery = 5 * time.Second

// TellWaits says every few seconds who is awaited; awaited returns "" for nobody. Nothing is said after stop,
// which waits for a say that is under way.
func TellWaits(say func(text string), awaited func() string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(tellEvery)
		defer t.Stop()
		said := ""
		for waited, next := tellEvery, tellEvery; ; waited += tellEvery {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			text := awaited()
			if ctx.Err() != nil {
				return
			}
			if text == "" || text == said && waited < next {
				continue
			}
			said, next = text, 2*waited
			say(fmt.Sprintf("waiting for %v: %s", waited, text))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// telling passes the ranks awaited at a rendezvous to m.Waits until stop is called.
func (m Meeting) telling(awaited func() string) (stop func()) {
	if m.Waits == nil {
		return func() {}
	}
	return TellWaits(func(text string) { m.Waits("rendezvous: " + text) }, awaited)
}

// absentees says who has not come to a rendezvous yet.
type absentees struct{ text atomic.Pointer[string] }

func (l *absentees) note(arrived []net.Conn) {
	text := ""
	if slices.Contains(arrived[1:], nil) {
		text = absent(arrived)
	}
	l.text.Store(&text)
}

func (l *absentees) absent() string { return *l.text.Load() }
