// Package acceptor takes connections from listeners that strangers can reach. A connection has to open with a greeting.
// Connections that have not greeted are few and wait for a short time, so that they neither use up the process's
// descriptors nor keep others out.
package acceptor

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

const (
	// Plain is how long a connection may take over a greeting in the clear. A peer that is closed connects again.
	Plain = time.Second
	// proof is how long one may take that proves a secret. Both ends compute for it, and where hundreds connect at once
	// they wait for a core. To close them for that would have them compute again.
	proof = 20 * time.Second
	// limit is how many connections that have not greeted are open, the one accepted last included.
	limit = 64
	// leastAge divides a Patience: so old a connection must be to be closed for the sake of a new one, as a group's ranks
	// come all at once, and each needs a moment to be read.
	leastAge = 50
	// retry is the pause after a failure to accept: out of descriptors, perhaps only for now.
	retry = 10 * time.Millisecond
)

// Patience says how long a connection may take over its greeting: Greeting, or Late if that is not 0. Where there are
// too many, a new one closes another after a fiftieth of Greeting, or a fiftieth of Silent if no byte has come: silence
// costs a stranger nothing, so it must not keep others out for long.
type Patience struct{ Silent, Greeting, Late time.Duration }

// PatienceFor returns the Patience of a listener with a secret, or without one, where a greeting in the clear may take
// so long.
func PatienceFor(plain time.Duration, secret bool) Patience {
	if secret {
		return Patience{Silent: plain, Greeting: proof}
	}
	return Patience{Silent: plain, Greeting: plain}
}

// Serve takes connections from ln until it is closed. greet runs for each connection, on a goroutine of its own. It
// reads the greeting, in time, and calls proven if the greeting is right: the connection is then greet's,
// without a deadline, unless proven returns false since it came too late. A connection is closed if greet returns
// without that. Serve returns when all its goroutines have.
func Serve(ln net.Listener, p Patience, greet func(conn net.Conn, proven func() bool)) {
	var all sync.WaitGroup
	defer all.Wait()
	s := pendingConns{Patience: p, left: make(chan struct{}, 1)}
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
		one := s.enter(conn)
		all.Go(func() {
			defer close(one.ended)
			_ = conn.SetDeadline(time.Now().Add(cmp.Or(p.Late, p.Greeting)))
			awaitFirst(conn)
			s.noteFirstByte(one)
			greet(conn, func() bool { return s.leave(one) && conn.SetDeadline(time.Time{}) == nil })
			if s.leave(one) {
				_ = conn.Close()
			}
		})
	}
}

// awaitFirst waits for the first byte of a connection, for its end or its deadline, and leaves the byte there. Of a
// connection that is none of the kernel's it does not know, and does not wait.
func awaitFirst(conn net.Conn) {
	if raw := rawOf(conn); raw != nil {
		_ = raw.Read(func(fd uintptr) bool {
			_, e := sys.Peek(int(fd), make([]byte, 1))
			return e != syscall.EAGAIN
		})
	}
}

// began reports whether the first byte of a connection is there.
func began(conn net.Conn) (there bool) {
	if raw := rawOf(conn); raw != nil {
		_ = raw.Control(func(fd uintptr) {
			n, e := sys.Peek(int(fd), make([]byte, 1))
			there = e == 0 && n > 0
		})
	}
	return there
}

func rawOf(conn net.Conn) syscall.RawConn {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// pendingConns are the connections that have not greeted yet.
type pendingConns struct {
	Patience

	mu   sync.Mutex
	all  []*pendingConn
	left chan struct{} // holds a token when one has left
}

type pendingConn struct {
	net.Conn
	due     time.Time     // from then on it makes room for another
	started bool          // its first byte has come
	ended   chan struct{} // closed when its goroutine has; only then is the descriptor free
}

// enter adds a connection. If there are too many with it, it waits until one leaves, or one is due to make room.
func (s *pendingConns) enter(conn net.Conn) *pendingConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all)+1 >= limit {
		first := slices.MinFunc(s.all, func(a, b *pendingConn) int { return a.due.Compare(b.due) })
		wait := time.Until(first.due)
		if wait <= 0 && !first.started && began(first.Conn) { // its goroutine waits for a core
			s.begin(first)
			continue
		}
		if wait <= 0 {
			s.remove(first)
			_ = first.Close()
			s.mu.Unlock()
			<-first.ended
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
	one := &pendingConn{Conn: conn, due: time.Now().Add(s.Silent / leastAge), ended: make(chan struct{})}
	s.all = append(s.all, one)
	return one
}

// noteFirstByte says that the first byte of a connection has come.
func (s *pendingConns) noteFirstByte(one *pendingConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !one.started {
		s.begin(one)
	}
}

// begin has a connection make room later. s.mu is held.
func (s *pendingConns) begin(one *pendingConn) {
	one.started = true
	one.due = time.Now().Add(s.Greeting / leastAge)
}

// leave removes a connection and reports whether it was still there.
func (s *pendingConns) leave(one *pendingConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remove(one) {
		return false
	}
	select {
	case s.left <- struct{}{}:
	default:
	}
	return true
}

func (s *pendingConns) remove(one *pendingConn) bool {
	i := slices.Index(s.all, one)
	if i < 0 {
		return false
	}
	s.all = slices.Delete(s.all, i, i+1)
	return true
}

func (s *pendingConns) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		_ = one.Close()
	}
	s.all = nil
}
