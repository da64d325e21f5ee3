// Package acceptor takes connections from listeners that strangers can reach. Whoever connects has
// to open with a greeting; those that have not are few and wait for a short time, so that they
// neither use up the process's descriptors nor keep those away that have something to say.
package acceptor

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// Patience is how long a connection may take over its greeting where whoever is closed connects
	// again.
	Patience = time.Second
	// ProofPatience is that where a secret is proven: both ends compute, and where hundreds come at once they wait for a core. Whoever
	// was closed for that would only compute again.
	ProofPatience = 20 * time.Second
	// limit is how many connections that have not greeted are open, the one accepted last included.
	limit = 64
	// leastAge divides patience: so old the oldest of them must be to be closed for the sake of a
	// new one, as a group's ranks come all at once, and each needs a moment to be read.
	leastAge = 50
	// retry is the pause after a failure to accept: out of descriptors, perhaps only for now.
	retry = 10 * time.Millisecond
)

// PatienceFor returns how long a connection may take over its greeting, with a secret or without.
func PatienceFor(secret bool) time.Duration {
	if secret {
		return ProofPatience
	}
	return Patience
}

// Serve takes connections from ln until it is closed. greet runs for each of them, on a goroutine
// of its own. It reads the greeting, within patience, and calls proven if that is right: the
// connection is then greet's, without a deadline, unless proven returns false, for it came too
// late. A connection whose greet returns without that is closed. Serve returns when all its
// goroutines have.
func Serve(ln net.Listener, patience time.Duration, greet func(conn net.Conn, proven func() bool)) {
	var all sync.WaitGroup
	defer all.Wait()
	s := strangers{leastAge: patience / leastAge, left: make(chan struct{}, 1)}
	defer s.closeAll()
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(retry)
			continue
		}
		ended := s.enter(conn)
		all.Go(func() {
			defer close(ended)
			_ = conn.SetDeadline(time.Now().Add(patience))
			greet(conn, func() bool { return s.leave(conn) && conn.SetDeadline(time.Time{}) == nil })
			if s.leave(conn) {
				_ = conn.Close()
			}
		})
	}
}

// strangers are the connections that have not greeted yet, oldest first.
type strangers struct {
	leastAge time.Duration

	mu   sync.Mutex
	all  []stranger
	left chan struct{} // holds a token when one has left
}

type stranger struct {
	net.Conn
	since time.Time
	ended chan struct{} // closed when its goroutine has; only then is the descriptor free
}

// enter adds a connection. If there are too many with it, it waits until one leaves, or the oldest
// is old enough to be closed.
func (s *strangers) enter(conn net.Conn) (ended chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended = make(chan struct{})
	s.all = append(s.all, stranger{conn, time.Now(), ended})
	for len(s.all) >= limit {
		oldest := s.all[0]
		wait := time.Until(oldest.since.Add(s.leastAge))
		if wait <= 0 {
			s.all = s.all[1:]
			_ = oldest.Close()
			s.mu.Unlock()
			<-oldest.ended
			s.mu.Lock()
			continue
		}
		s.mu.Unlock()
		select {
		case <-s.left:
		case <-time.After(wait):
		}
		s.mu.Lock()
	}
	return ended
}

// leave removes a connection and reports whether it was still there.
func (s *strangers) leave(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].Conn == conn {
			s.all = append(s.all[:i], s.all[i+1:]...)
			select {
			case s.left <- struct{}{}:
			default:
			}
			return true
		}
	}
	return false
}

func (s *strangers) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		_ = one.Close()
	}
	s.all = nil
}
