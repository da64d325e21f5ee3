package world

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// stream is a connection of TCP: lost segments are repeated, after longer and longer pauses.
type stream struct {
	world   *World
	flow    Flow // Meeting until a rank has greeted on it
	segment int  // payload bytes of the largest packets
}

// end is one end of a stream. It implements net.Conn for callers that wait, and has take and give for a fabric, which
// does not. world.mu guards everything.
type end struct {
	*stream
	host *Host
	peer *end
	port uint16

	in       []byte // arrived, and not read yet
	finished bool   // and nothing follows
	err      error  // why the connection is broken
	closed   bool   // by this end

	queue  []segment // not acknowledged yet
	queued int       // bytes in queue
	sent   int       // elements of queue that are under way
	ending bool      // a FIN was queued
	arrive time.Time // of what was sent last
	since  time.Time // when nothing was acknowledged for the first time; zero: all is
	pause  time.Duration
	again  *time.Timer   // repeats
	limit  time.Duration // for which nothing may be acknowledged; 0: patience

	changed       chan struct{} // replaced when something has
	waiting       int           // for that
	readBy        time.Time
	writeBy       time.Time
	bell          func() // of a fabric, when something has changed
	acknowledging int64  // bytes acknowledged so far
}

// segment is what was written at once.
type segment struct {
	data    []byte
	fin     bool
	at      time.Time // of arrival
	arrived bool
}

func newEnd(s *stream, h *Host, port uint16) *end {
	e := &end{stream: s, host: h, port: port, changed: make(chan struct{})}
	h.ends[e] = struct{}{}
	return e
}

// notify has everybody look who waits. world.mu is held, here and below.
func (e *end) notify() {
	if e.waiting > 0 {
		close(e.changed)
		e.changed = make(chan struct{})
	}
	if e.bell != nil {
		e.bell()
	}
}

// room returns how many bytes may be written.
func (e *end) room() int { return max(0, streamMax-e.queued-len(e.peer.in)) }

// push sends bytes, which must not change any more.
func (e *end) push(b []byte, fin bool) {
	var h wire.Hello
	if e.flow == Meeting && len(b) == wire.HelloSize && h.Get(b) == nil {
		e.flow = map[wire.Purpose]Flow{
			wire.PurposeMesh: Mesh, wire.PurposeControl: Control, wire.PurposeStream: Stream, wire.PurposeMessage: Stream,
		}[h.Purpose]
	}
	e.queue = append(e.queue, segment{data: b, fin: fin})
	e.queued += len(b)
	e.transmit()
}

// packet returns the bytes of the largest packet of a segment.
func (s *stream) packet(g *segment) int { return headers + min(len(g.data), s.segment) }

// transmit sends what was not sent yet, up to the first packet that is lost.
func (e *end) transmit() {
	if e.host.stopped != nil {
		return // resume repeats
	}
	now := time.Now()
	for e.sent < len(e.queue) && (e.since.IsZero() || e.sent == 0) {
		g := &e.queue[e.sent]
		size := e.packet(g)
		if !e.world.passes(e.host, e.peer.host, e.flow, size) {
			e.unacknowledged()
			return
		}
		at := e.host.carry(e.peer.host, now, headers+len(g.data))
		if at.Before(e.arrive) {
			at = e.arrive
		}
		e.arrive, g.at = at, at
		e.sent++
		time.AfterFunc(at.Sub(now), e.arrived)
	}
}

// arrived takes what has come to the other end by now, and acknowledges it.
func (e *end) arrived() {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	now := time.Now()
	for e.sent > 0 && !e.queue[0].at.After(now) && e.err == nil {
		g := &e.queue[0]
		if e.peer.closed && !g.arrived && !g.fin || e.peer.err != nil {
			e.refuse()
			return
		}
		if !g.arrived {
			g.arrived = true
			e.peer.in = append(e.peer.in, g.data...)
			e.peer.finished = e.peer.finished || g.fin
			e.peer.notify()
		}
		if !e.world.passes(e.peer.host, e.host, e.flow, smallest) {
			e.unacknowledged()
			return
		}
		e.queued -= len(g.data)
		e.acknowledging += int64(len(g.data))
		e.queue = e.queue[1:]
		e.sent--
		e.since, e.pause = time.Time{}, 0
		e.notify()
	}
	if e.err == nil {
		e.transmit()
	}
	e.forget()
}

// refuse is the answer of a kernel when its process has closed the connection.
func (e *end) refuse() {
	if e.world.passes(e.peer.host, e.host, e.flow, smallest) {
		e.fail(syscall.ECONNRESET)
	} else {
		e.unacknowledged()
	}
}

// unacknowledged goes back to the first segment that was not acknowledged, and repeats it later.
func (e *end) unacknowledged() {
	e.sent = 0
	now := time.Now()
	if e.since.IsZero() {
		e.since, e.pause = now, firstRTO
	} else {
		e.pause = min(2*e.pause, lastRTO)
	}
	limit := e.limit
	if limit == 0 {
		limit = patience
	}
	if now.Sub(e.since) >= limit {
		e.fail(syscall.ETIMEDOUT)
		return
	}
	wait := min(e.pause, limit-now.Sub(e.since))
	if e.again == nil {
		e.again = time.AfterFunc(wait, func() {
			e.world.mu.Lock()
			defer e.world.mu.Unlock()
			e.repeat()
		})
	} else {
		e.again.Reset(wait)
	}
}

// repeat sends again from the first segment on that was not acknowledged.
func (e *end) repeat() {
	if e.err != nil || len(e.queue) == 0 || e.host.stopped != nil || e.host.crashed {
		return
	}
	if !e.since.IsZero() {
		e.sent = 0
	}
	e.transmit()
}

// stalled returns what sys.Stall would find.
func (e *end) stalled(limit time.Duration) *sys.StallError {
	if e.since.IsZero() || e.err != nil {
		return nil
	}
	if d := time.Since(e.since); d >= limit {
		return &sys.StallError{Segment: e.segment, For: d}
	}
	return nil
}

// fail breaks this end.
func (e *end) fail(no syscall.Errno) {
	if e.err == nil {
		e.err = no
		e.drop()
		e.notify()
	}
	e.forget()
}

// drop throws away what was not acknowledged.
func (e *end) drop() {
	e.queue, e.queued, e.sent, e.since = nil, 0, 0, time.Time{}
	if e.again != nil {
		e.again.Stop()
	}
}

// forget drops an end that nobody holds and that has nothing to send.
func (e *end) forget() {
	if e.closed && (len(e.queue) == 0 || e.err != nil) {
		delete(e.host.ends, e)
	}
}

// reset closes this end, and tells the other that nothing was read.
func (e *end) reset() {
	e.closed = true
	e.drop()
	if e.err == nil {
		e.err = net.ErrClosed
	}
	if e.world.passes(e.host, e.peer.host, e.flow, smallest) {
		time.AfterFunc(e.world.cfg.Delay, func() {
			e.world.mu.Lock()
			defer e.world.mu.Unlock()
			if !e.peer.closed {
				e.peer.fail(syscall.ECONNRESET)
			}
		})
	}
	e.notify()
	e.forget()
}

// close closes this end: what was written still arrives.
func (e *end) close() {
	switch {
	case e.closed:
		return
	case e.host.crashed:
		e.closed, e.err = true, net.ErrClosed
		e.drop()
		e.notify()
	case len(e.in) > 0:
		e.reset()
	default:
		e.closed = true
		if !e.ending && e.err == nil {
			e.ending = true
			e.push(nil, true)
		}
		e.notify()
	}
	e.forget()
}

// take returns up to n bytes that have arrived, or why there will be none. Neither: there is
// nothing yet.
func (e *end) take(n int) ([]byte, error) {
	if e.host.stopped != nil {
		return nil, nil
	}
	if len(e.in) > 0 && !e.closed {
		b := e.in[:min(n, len(e.in))]
		e.in = e.in[len(b):]
		e.peer.notify()
		return b, nil
	}
	switch {
	case e.closed || e.host.gone:
		return nil, net.ErrClosed
	case e.err != nil:
		return nil, e.err
	case e.finished:
		return nil, io.EOF
	}
	return nil, nil
}

// endOf returns the end that a connection is on. Where ranks have a secret, a fabric of the world goes on without the
// records.
func endOf(c net.Conn) *end {
	if p, ok := c.(*record.Conn); ok {
		c = p.NetConn()
	}
	return c.(*end)
}

// give sends what there is room for, and returns how many bytes that is. It keeps b.
func (e *end) give(b []byte) (int, error) {
	switch {
	case e.closed || e.host.gone:
		return 0, net.ErrClosed
	case e.err != nil:
		return 0, e.err
	case e.ending:
		return 0, syscall.EPIPE
	}
	n := min(len(b), e.room())
	if n > 0 {
		e.push(b[:n], false)
	}
	return n, nil
}

// wait waits until something has changed or a deadline is over, with world.mu held.
func (e *end) wait(by time.Time) {
	changed, stopped := e.changed, e.host.stopped
	e.waiting++
	e.world.mu.Unlock()
	switch {
	case stopped != nil:
		<-stopped
	case by.IsZero():
		<-changed
	default:
		t := time.NewTimer(time.Until(by))
		select {
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
	e.world.mu.Lock()
	e.waiting--
}

// wrap names an error as package net does.
func (e *end) wrap(op string, err error) error {
	if err == io.EOF { //nolint:errorlint // as net.Conn returns it
		return err
	}
	if no, ok := err.(syscall.Errno); ok { //nolint:errorlint // as it was set
		err = os.NewSyscallError(op, no)
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: e.RemoteAddr(), Err: err}
}

func over(by time.Time) bool { return !by.IsZero() && !time.Now().Before(by) }

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	for {
		if over(e.readBy) && e.host.stopped == nil {
			return 0, e.wrap("read", os.ErrDeadlineExceeded)
		}
		got, err := e.take(len(b))
		if len(got) > 0 || len(b) == 0 && err == nil {
			return copy(b, got), nil
		}
		if err != nil {
			return 0, e.wrap("read", err)
		}
		e.wait(e.readBy)
	}
}

// Write implements net.Conn.
func (e *end) Write(b []byte) (int, error) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	done := 0
	for done < len(b) || done == 0 {
		if over(e.writeBy) && e.host.stopped == nil {
			return done, e.wrap("write", os.ErrDeadlineExceeded)
		}
		n, err := e.give(append([]byte(nil), b[done:]...))
		if err != nil {
			return done, e.wrap("write", err)
		}
		if done += n; done == len(b) {
			break
		}
		e.wait(e.writeBy)
	}
	return done, nil
}

// Close implements net.Conn.
func (e *end) Close() error {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	if e.closed {
		return e.wrap("close", net.ErrClosed)
	}
	e.close()
	return nil
}

// CloseWrite does as net.TCPConn's does: it sends a FIN.
func (e *end) CloseWrite() error {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	if e.closed || e.err != nil || e.ending {
		return e.wrap("close", net.ErrClosed)
	}
	e.ending = true
	e.push(nil, true)
	return nil
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return &net.TCPAddr{IP: e.host.addr.AsSlice(), Port: int(e.port)} }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: e.peer.host.addr.AsSlice(), Port: int(e.peer.port)}
}

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.deadline(t, &e.readBy, &e.writeBy) }

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error { return e.deadline(t, &e.readBy) }

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error { return e.deadline(t, &e.writeBy) }

func (e *end) deadline(t time.Time, of ...*time.Time) error {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	if e.closed {
		return e.wrap("set", net.ErrClosed)
	}
	for _, by := range of {
		*by = t
	}
	e.notify()
	return nil
}
