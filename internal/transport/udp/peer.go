package udp

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// outLimit bounds what waits for a peer that does not read.
const outLimit = 1 << 20

// inSize is the least size of a peer's receive buffer.
const inSize = 64 << 10

// peer is the control connection to one rank.
type peer struct {
	rank int
	tag  int         // in the poller
	line record.Line // its descriptor is -1 once the connection is lost

	out     []byte // out[sent:] is queued, not sent yet
	sent    int
	queued  bool // in Edges.dirty
	blocked bool // the kernel had no room; watched until it has
	mute    bool // sending failed; reading will tell why
	unacked bool // something was sent that was not acknowledged when settled looked last
	tail    tail
	stall   sys.Stall
	stalled *sys.StallError // found by Sleep, for Poll to tell

	in   []byte // in[read:filled] was received and not delivered yet
	read int
	fill int
	more bool // a whole message may be left in in, or something in line
}

// push queues a message and reports whether there was room.
func (p *peer) push(m *wire.Control, payload []byte) bool {
	if p.line.FD < 0 || p.mute {
		return true // Poll has told the sink, or will; nobody waits for this message.
	}
	n, more := len(p.out), wire.ControlSize+len(payload)
	if n+more > cap(p.out) {
		if n-p.sent+more > cap(p.out)/2 { // to be moved less often than it is sent
			return false
		}
		n = copy(p.out, p.out[p.sent:])
		p.sent = 0
	}
	p.out = p.out[:n+wire.ControlSize]
	m.Put(p.out[n:])
	p.out = append(p.out, payload...)
	return true
}

// queuedBytes is how much waits to be sent.
func (p *peer) queuedBytes() int { return len(p.out) - p.sent }

// flush sends queued bytes, as far as the kernel has room.
func (g *Edges) flush(p *peer) {
	if p.line.FD < 0 || p.queuedBytes() == 0 && !p.line.Pending() {
		return
	}
	g.stats.syscalls.Add(1)
	n, err := p.line.Send(p.out[p.sent:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		p.mute = true
		n = p.queuedBytes()
	} else {
		g.stats.controlBytes.Add(uint64(n))
		if n > 0 {
			p.unacked = true
			g.watch(p)
		}
	}
	if p.sent += n; p.sent == len(p.out) {
		p.out, p.sent = p.out[:0], 0
	}
	if blocked := p.queuedBytes() > 0 || p.line.Pending(); blocked != p.blocked {
		p.blocked = blocked
		events := uint32(unix.EPOLLIN)
		if blocked {
			events |= unix.EPOLLOUT
		}
		g.Note(g.poller.Change(p.line.FD, p.tag, events))
	}
}

// readPeer delivers the messages of a peer, and reads all bytes there are. It returns how many messages that
// were.
func (g *Edges) readPeer(p *peer, s fabric.Sink, budget int) (done int) {
	if p.more {
		done = g.parse(p, s, budget) // else there may be no room to read more
		if !p.line.Buffered() {
			return done
		}
	}
	for done < budget && p.line.FD >= 0 {
		g.stats.syscalls.Add(1)
		n, err := p.line.Receive(p.in[p.fill:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return done
		case err != nil:
			g.lost(p, s, err)
			return done
		case n == 0:
			g.closedByPeer(p, s)
			return done
		}
		p.fill += n
		done += g.parse(p, s, budget-done)
		if !p.line.Buffered() {
			return done
		}
	}
	return done
}

// parse delivers whole messages.
func (g *Edges) parse(p *peer, s fabric.Sink, budget int) int {
	done := 0
	for done < budget && g.next(p, s) {
		done++
	}
	left := done == budget
	g.setMore(p, p.line.FD >= 0 && (left || p.line.Buffered()))
	if !left && p.read > 0 {
		p.fill = copy(p.in, p.in[p.read:p.fill])
		p.read = 0
	}
	return done
}

func (g *Edges) setMore(p *peer, more bool) {
	if more != p.more {
		p.more = more
		if more {
			g.backlog++
		} else {
			g.backlog--
		}
	}
}

// next delivers one message, if it has arrived as a whole.
func (g *Edges) next(p *peer, s fabric.Sink) bool {
	b := p.in[p.read:p.fill]
	if len(b) < wire.ControlSize {
		return false
	}
	m := &g.message
	if err := m.Get(b); err != nil {
		g.lost(p, s, fmt.Errorf("control message % x: %w", b[:wire.ControlSize], err))
		return false
	}
	if int(m.Root) >= g.size || m.Payload() > g.chunk {
		g.lost(p, s,
			fmt.Errorf("%v message of root %d of %d with %d bytes of payload: want a root that there is, and at most %d bytes",
				m.Kind, m.Root, g.size, m.Payload(), g.chunk))
		return false
	}
	size := wire.ControlSize + m.Payload()
	if len(b) < size {
		return false
	}
	p.read += size
	switch {
	case m.HasChunk():
		g.chunkCame(m, b[wire.ControlSize:size], s)
	case m.Kind != wire.Nudge:
		s.Control(p.rank, m)
	}
	return true
}

// chunkCame delivers a chunk that came by repair or relay.
func (g *Edges) chunkCame(m *wire.Control, payload []byte, s fabric.Sink) {
	if m.Kind == wire.Repair {
		g.repairs[m.Root].Add(1)
	}
	h := &g.head
	*h = wire.DataOf(m)
	to, verdict, _ := s.Accept(h, len(payload))
	if verdict != fabric.Take {
		g.stats.dropped.Add(1)
		return
	}
	copy(to, payload)
	s.Received(h)
}

func (g *Edges) closedByPeer(p *peer, s fabric.Sink) {
	err := io.EOF
	if p.fill > 0 {
		err = io.ErrUnexpectedEOF
	}
	g.lost(p, s, fmt.Errorf("closed its control connection: %w", err))
}

// lost gives a connection up and tells the sink.
func (g *Edges) lost(p *peer, s fabric.Sink, cause error) {
	if e := syscall.Errno(0); errors.As(cause, &e) {
		cause = fmt.Errorf("control connection: %w", e)
	}
	g.Note(g.poller.Unwatch(p.line.FD))
	_ = unix.Close(p.line.FD)
	p.line.FD = -1
	p.out, p.sent = p.out[:0], 0
	s.Broken(p.rank, fmt.Errorf("%s: %w", g.name, cause))
}
