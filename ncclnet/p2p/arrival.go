package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// arrival is a connection in the making, on the listener's side. The goroutine
// of lane 0 makes it; those of the other sockets hand theirs in and wait for it.
type arrival struct {
	lanes   [MaxLanes]*identity.Greeting
	ring    int           // descriptor, or noRing, or ringTaken
	changed chan struct{} // holds a token when something came
	done    chan struct{} // closed when lane 0 needs the rest no more
}

const (
	noRing    = -1 // has not come
	ringTaken = -2 // came, and is no longer the arrival's
)

// join hands something in, unless it came already.
func (l *Listener) join(id uint64, put func(*arrival) bool) *arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.arrivals[id]
	if a == nil {
		a = &arrival{ring: noRing, changed: make(chan struct{}, 1), done: make(chan struct{})}
		l.arrivals[id] = a
	}
	if !put(a) {
		return nil
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
	return a
}

// leave forgets an arrival, if it is still known.
func (l *Listener) leave(id uint64, a *arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arrivals[id] == a {
		delete(l.arrivals, id)
	}
}

// await waits until has returns true: the connection is complete enough for the caller.
func (l *Listener) await(ctx context.Context, a *arrival, has func() bool) error {
	for {
		l.mu.Lock()
		ok := has()
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.quit:
			return net.ErrClosed
		}
	}
}

// park keeps a socket's goroutine until lane 0 needs it no more.
func (l *Listener) park(ctx context.Context, id uint64, a *arrival) {
	select {
	case <-a.done:
	case <-ctx.Done():
		l.leave(id, a) // lane 0 never came
	case <-l.quit:
	}
}

// greetLane takes one TCP socket of a connection.
func (l *Listener) greetLane(c net.Conn, proven func() bool) {
	greeted, err := l.opts.Identity.Accept(c)
	if err != nil {
		return
	}
	b := make([]byte, greetingSize)
	if _, err := io.ReadFull(greeted, b); err != nil {
		return
	}
	g, err := parseGreeting(b, l.place.key)
	if err != nil {
		return
	}
	ctx, drop, ok := l.adopt(c, proven)
	if !ok {
		return
	}
	defer drop()
	a := l.join(g.id, func(a *arrival) bool {
		if a.lanes[g.lane] != nil {
			return false
		}
		a.lanes[g.lane] = greeted
		return true
	})
	switch {
	case a == nil:
	case g.lane > 0:
		l.park(ctx, g.id, a)
	default:
		defer close(a.done)
		defer l.leave(g.id, a)
		if err := l.make(ctx, g, a); err != nil && !errors.Is(err, net.ErrClosed) {
			l.finish(result{err: fmt.Errorf("p2p: accept from %v: %w", c.RemoteAddr(), err)})
		}
	}
}

// greetRing takes the shared memory of a connection.
func (l *Listener) greetRing(c net.Conn, proven func() bool) {
	b, oob := make([]byte, greetingSize), make([]byte, unix.CmsgSpace(4))
	n, no, _, _, err := c.(*net.UnixConn).ReadMsgUnix(b, oob)
	if err != nil {
		return
	}
	fd, err := descriptor(oob[:no])
	if err != nil {
		return
	}
	g, err := parseGreeting(b[:n], l.place.key)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	ctx, drop, ok := l.adopt(c, proven)
	if !ok {
		_ = unix.Close(fd)
		return
	}
	defer drop()
	a := l.join(g.id, func(a *arrival) bool {
		if a.ring != noRing {
			return false
		}
		a.ring = fd
		return true
	})
	if a == nil {
		_ = unix.Close(fd)
		return
	}
	_, _ = c.Write([]byte{1}) // a peer that does not read it goes on without the ring
	l.park(ctx, g.id, a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.takeRing() == fd {
		_ = unix.Close(fd)
	}
}

// takeRing returns the ring, which is the caller's from then on, or noRing or
// ringTaken. The listener's lock is held.
func (a *arrival) takeRing() int {
	fd := a.ring
	if fd >= 0 {
		a.ring = ringTaken
	}
	return fd
}

// descriptor returns the one that came with a message.
func descriptor(oob []byte) (int, error) {
	var fds []int
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		if some, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	if err == nil && len(fds) == 1 {
		return fds[0], nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return -1, errStranger
}

// make agrees with the connecting end and makes the comm.
func (l *Listener) make(ctx context.Context, g greeting, a *arrival) error {
	first := a.lanes[0]
	both := g.offer & l.place.fabrics
	ans := answer{lanes: min(g.lanes, l.opts.lanesOf(first)), fabric: tcp, seal: l.opts.sealPolicy}
	sockets := ans.lanes
	switch {
	case both&verbs != 0:
		ans.fabric, sockets = verbs, 1
	case both&shm != 0:
		ans.fabric, ans.lanes, sockets = shm, 1, 1
	case both == 0:
		ans.fabric = 0
	}
	if _, err := first.Write(ans.bytes()); err != nil {
		return err
	}
	if ans.fabric == 0 {
		return fmt.Errorf("this end allows %v, the peer %v", l.place.fabrics, g.offer)
	}
	sealed, err := l.opts.sealed(ans.fabric, g.seal)
	if err != nil {
		return err
	}
	ring := noRing
	has := func() bool {
		for _, c := range a.lanes[:sockets] {
			if c == nil {
				return false
			}
		}
		if ans.fabric == shm {
			ring = a.takeRing()
		}
		return ans.fabric != shm || ring >= 0
	}
	if err := l.await(ctx, a, has); err != nil {
		return fmt.Errorf("wait for the rest of the connection: %w", err)
	}
	if ring >= 0 {
		defer unix.Close(ring) //nolint:errcheck // the mapping keeps the memory
	}
	var pairs *queues
	if ans.fabric == verbs {
		if pairs, err = l.opts.Device.acceptQueues(first, ans.lanes, l.opts.Timeout); err != nil {
			return err
		}
		defer pairs.close()
	}
	comm, err := open(&l.opts, false, below(a.lanes[:sockets]), ring, pairs, sealed)
	if err != nil {
		return err
	}
	ans.ready = true
	// The peer sends nothing until it has read that, and may have sent all and be gone right after.
	if sealed {
		err = l.opts.seal(a.lanes[:sockets], inward)
	}
	if err == nil {
		_, err = first.Write(ans.bytes())
	}
	if err == nil && sealed {
		err = l.opts.seal(a.lanes[:sockets], outward)
	}
	if err != nil {
		closeComm(comm)
		return err
	}
	l.opts.note("p2p: from %v over %v, lanes %d%s", first.RemoteAddr(), ans.fabric, ans.lanes, sealedNote(sealed))
	l.finish(result{comm: comm})
	return nil
}

func (l *Listener) finish(r result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed() {
		l.ready = append(l.ready, r)
	} else if r.comm != nil {
		closeComm(r.comm)
	}
}
