package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	segment  = 128 << 10 // bytes of a read or write, at most
	minGrain = 4 << 10
	maxGrain = 64 << 10
	lead     = 1 << 20 // bytes by which a Reduce-Scatter may receive ahead of its sending
)

// grain is how many bytes of a block of n are received before they are sent on: few, so that a
// chain of many ranks is soon filled; but not so few that each costs a system call of its own.
func grain(n int) int { return min(max(n/16, minGrain), maxGrain) }

// lane is the connections of one kind of collective. Without neighbours it has none.
type lane struct {
	left, right    int // ranks
	from, to       net.Conn
	room           []byte // where partial results arrive
	sent, received atomic.Uint64
	err            error // ended the lane
}

// transfer is one collective of a rank: a stream of bytes to the right and one from the left.
// What arrives follows in the stream to the right after the own bytes, as far as that goes.
type transfer struct {
	sends, receives int // lengths of the streams
	own             int // bytes that can be sent before any arrive
	unit            int // arrived bytes are taken in multiples of this
	grain           int
	ahead           int // how many more bytes may have arrived than were sent; 0: any number

	// out and in return the memory of a stream from a place on, up to where it is in one piece.
	out, in func(at int) []byte
	took    func(at int, b []byte) // what to do with arrivals; may be nil

	mu      sync.Mutex
	moved   sync.Cond
	ready   int // bytes that can be sent
	sent    int
	stopped bool
}

// run does a transfer: this goroutine receives, another one sends.
func (l *lane) run(ctx context.Context, t *transfer) error {
	t.moved.L, t.ready = &t.mu, t.own
	interrupted := context.AfterFunc(ctx, func() { l.stop(t) })
	sending := make(chan error, 1)
	go func() {
		err := l.send(t)
		if err != nil {
			l.stop(t)
		}
		sending <- err
	}()
	err := l.receive(t)
	if err != nil {
		l.stop(t)
	}
	sendErr := <-sending
	if !interrupted() {
		return context.Cause(ctx) // the cause, rather than the errors that follow from it
	}
	// The direction that failed made the other one stop.
	if err == nil || errors.Is(err, errStopped) {
		err = sendErr
	}
	return err
}

var errStopped = errors.New("ring: the other direction has failed")

// stop ends both directions, wherever they wait.
func (l *lane) stop(t *transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.stopped = true
	t.moved.Broadcast()
	_ = l.from.SetDeadline(time.Unix(1, 0)) // fails when closed, which stops as well
	_ = l.to.SetDeadline(time.Unix(1, 0))
}

func (l *lane) send(t *transfer) error {
	for at := 0; at < t.sends; {
		ready, ok := t.await(func() int { return t.ready - at })
		if !ok {
			return errStopped
		}
		b := t.out(at)
		b = b[:min(len(b), ready, t.sends-at, segment)]
		if _, err := l.to.Write(b); err != nil {
			return t.lost(l.right, err)
		}
		at += len(b)
		l.sent.Add(uint64(len(b)))
		t.advance(&t.sent, at)
	}
	return nil
}

func (l *lane) receive(t *transfer) error {
	for at, have := 0, 0; at < t.receives; { // have: bytes of a unit that has not arrived in full
		b := t.in(at)
		b = b[:min(len(b), t.receives-at, segment)]
		if t.ahead > 0 {
			need := min(len(b), t.grain)
			room, ok := t.await(func() int {
				if free := t.sent + t.ahead - at; free >= need {
					return free
				}
				return 0
			})
			if !ok {
				return errStopped
			}
			b = b[:min(len(b), room)]
		}
		n, err := io.ReadAtLeast(l.from, b[have:], max(min(len(b), t.grain)-have, 1))
		if err != nil {
			return t.lost(l.left, err)
		}
		l.received.Add(uint64(n))
		have += n
		whole := have - have%t.unit
		if t.took != nil {
			t.took(at, b[:whole])
		}
		at, have = at+whole, have-whole
		t.advance(&t.ready, t.own+at)
	}
	return nil
}

// lost says which rank an error is about, unless it was made by stop.
func (t *transfer) lost(rank int, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return errStopped
	}
	return fmt.Errorf("ring: rank %d is lost: %w", rank, err)
}

// await returns what enough does as soon as that is above 0; false: the transfer was stopped.
func (t *transfer) await(enough func() int) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.stopped {
			return 0, false
		}
		if n := enough(); n > 0 {
			return n, true
		}
		t.moved.Wait()
	}
}

func (t *transfer) advance(count *int, to int) {
	t.mu.Lock()
	*count = to
	t.mu.Unlock()
	t.moved.Broadcast()
}

// reserve makes room for the partial results of blocks of n bytes. The room is as long as what can
// be in it: the block that is being sent on, and the lead. Elements do not straddle its end.
func (l *lane) reserve(n int) {
	if want := (n + lead + 7) &^ 7; len(l.room) < want {
		l.room = make([]byte, want)
	}
}

func (l *lane) close() error {
	var errs []error
	for _, c := range []net.Conn{l.from, l.to} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
