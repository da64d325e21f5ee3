package verbs

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// introduction is how two ranks come to know each other's queue pairs, over a TCP connection that stays to tell that
// they live: each says its own (wire.QueuePair), connects to the other's, and says so. Bytes sent before that would
// find no queue pair.
type introduction struct {
	fd       int
	at       int // of the ring to send from in its region
	received [wire.QueuePairSize + 1]byte
	have     int
	done     bool   // the other rank has connected, too
	ring     uint64 // address of its ring
	key      uint32
}

// introduce says this rank's queue pair.
func (s *Streams) introduce(p *peer) {
	a := p.queue.Address()
	q := wire.QueuePair{
		Number: a.Number, PSN: a.PSN, MTU: a.MTU, LID: uint16(a.LID), GID: a.GID,
		Ring: p.in.Address(0), Key: p.in.RemoteKey(), Bytes: uint32(s.ring),
	}
	var b [wire.QueuePairSize]byte
	q.Put(b[:])
	p.sendTCP(b[:])
}

// sendTCP sends a few bytes by TCP, which has room for them: nothing was sent before.
func (p *peer) sendTCP(b []byte) {
	switch n, e := sys.Send(p.intro.fd, b); {
	case e != 0:
		p.fail(e)
	case n < len(b):
		p.fail(fmt.Errorf("%d of %d bytes: %w", n, len(b), io.ErrShortWrite))
	}
}

// readIntroduction reads what the other rank says by TCP, and goes on as far as that allows. All is said once it is
// done, but for the end.
func (s *Streams) readIntroduction(p *peer) {
	for p.err == nil {
		room := p.intro.received[p.intro.have:]
		if len(room) == 0 {
			room = p.intro.received[:1]
		}
		n, e := sys.Receive(p.intro.fd, room)
		switch {
		case e == unix.EAGAIN:
			return
		case e != 0:
			s.end(p, e)
		case n == 0:
			s.end(p, io.EOF)
		case p.intro.done:
			p.fail(fmt.Errorf("it says % x where it has nothing to say", room[:n]))
		default:
			p.intro.have += n
			if err := s.proceed(p, n); err != nil {
				p.fail(err)
			}
		}
	}
}

// proceed takes the last n received bytes.
func (s *Streams) proceed(p *peer, n int) error {
	i := &p.intro
	if i.have >= wire.QueuePairSize && i.have-n < wire.QueuePairSize {
		var q wire.QueuePair
		if err := q.Get(i.received[:]); err != nil {
			return fmt.Errorf("introduction % x: %w", i.received[:wire.QueuePairSize], err)
		}
		if int(q.Bytes) != s.ring {
			return fmt.Errorf("its ring has %d bytes: want %d", q.Bytes, s.ring)
		}
		i.ring, i.key = q.Ring, q.Key
		if err := p.queue.Connect(ibverbs.Address{GID: q.GID, Number: q.Number, PSN: q.PSN, MTU: q.MTU, LID: uint32(q.LID)},
			cmp.Or(s.stall, time.Hour), s.tclass); err != nil {
			return err
		}
		p.sendTCP([]byte{wire.Connected})
	}
	if i.have < len(i.received) {
		return nil
	}
	if i.received[wire.QueuePairSize] != wire.Connected {
		return fmt.Errorf("it says %d: want %d", i.received[wire.QueuePairSize], wire.Connected)
	}
	i.done = true
	s.sendAck(p)
	return nil
}

// end ends a stream after its other end has gone, and after the bytes that the other end has sent.
func (s *Streams) end(p *peer, cause error) {
	s.look()
	p.fail(cause)
}
