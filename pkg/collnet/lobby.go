package collnet

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// greetTime bounds how long a new connection may take to say who it is.
const greetTime = 5 * time.Second

// lobby is where a rank receives the connections of its peers until they are
// asked for. A connection that does not open with the right greeting is closed
// and forgotten.
type lobby struct {
	listener net.Listener
	key      uint64

	mu      sync.Mutex
	waiting map[caller]*net.TCPConn
	changed chan struct{}
	closed  bool
}

type caller struct {
	purpose wire.Purpose
	rank    int
	job     uint64
}

// absentError says that a rank cannot be connected.
type absentError struct {
	rank int
	err  error
}

func (e *absentError) Error() string { return fmt.Sprintf("rank %d %v", e.rank, e.err) }
func (e *absentError) Unwrap() error { return e.err }

func newLobby() (*lobby, error) {
	ln, err := net.Listen("tcp4", ":0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen for peers: %w", err)
	}
	l := &lobby{listener: ln, key: random64(), waiting: map[caller]*net.TCPConn{}, changed: make(chan struct{})}
	go l.accept()
	return l, nil
}

// random64 returns a number that nobody can guess, never 0.
func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return binary.BigEndian.Uint64(b[:]) | 1
}

func (l *lobby) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

func (l *lobby) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		go l.greet(c.(*net.TCPConn)) // ends by itself: see greetTime
	}
}

func (l *lobby) greet(c *net.TCPConn) {
	var b [wire.HelloSize]byte
	var h wire.Hello
	_ = c.SetReadDeadline(time.Now().Add(greetTime))
	if _, err := io.ReadFull(c, b[:]); err != nil || h.Get(b[:]) != nil || h.Key != l.key {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	who := caller{h.Purpose, int(h.Rank), h.Job}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.waiting[who] != nil {
		_ = c.Close()
		return
	}
	l.waiting[who] = c
	close(l.changed)
	l.changed = make(chan struct{})
}

// take returns the connection that a peer has opened, or will.
func (l *lobby) take(ctx context.Context, who caller) (*net.TCPConn, error) {
	for {
		l.mu.Lock()
		c, changed := l.waiting[who], l.changed
		delete(l.waiting, who)
		l.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &absentError{who.rank, fmt.Errorf("has not connected: %w", context.Cause(ctx))}
		}
	}
}

// connect makes a connection to each of the given peers, the lower rank dialling.
func (l *lobby) connect(ctx context.Context, p *plan, purpose wire.Purpose, peers []int) (map[int]*net.TCPConn, error) {
	conns := make([]*net.TCPConn, len(peers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i, peer := range peers {
		g.Go(func() (err error) {
			if peer < p.rank {
				conns[i], err = l.take(ctx, caller{purpose, peer, p.job})
				return err
			}
			conns[i], err = dial(ctx, p, purpose, peer)
			return err
		})
	}
	err := g.Wait()
	out := map[int]*net.TCPConn{}
	for i, c := range conns {
		if c == nil {
			continue
		}
		if err != nil {
			_ = c.Close()
			continue
		}
		out[peers[i]] = c
	}
	return out, err
}

func dial(ctx context.Context, p *plan, purpose wire.Purpose, peer int) (*net.TCPConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", p.addrs[peer].String())
	if err != nil {
		return nil, &absentError{peer, fmt.Errorf("cannot be reached: %w", err)}
	}
	h := wire.Hello{Purpose: purpose, Rank: uint16(p.rank), Job: p.job, Key: p.keys[peer]} //nolint:gosec // a rank
	var b [wire.HelloSize]byte
	h.Put(b[:])
	if _, err := c.Write(b[:]); err != nil {
		_ = c.Close()
		return nil, &absentError{peer, fmt.Errorf("hung up: %w", err)}
	}
	return c.(*net.TCPConn), nil
}

func (l *lobby) close() {
	l.mu.Lock()
	l.closed = true
	for who, c := range l.waiting {
		_ = c.Close()
		delete(l.waiting, who)
	}
	l.mu.Unlock()
	_ = l.listener.Close()
}
