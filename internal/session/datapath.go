package session

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Datapath is a member's end of the sockets of a session. It implements fabric.Switch.
type Datapath struct {
	sockets []*datagram.Socket
	seals   []Seals // by stripe
	head    int     // bytes before a payload
	chunk   int
	batch   *datagram.Batch
	poller  datagram.Poller
	rooms   []datagram.Room // in front of the sockets, by stripe; poller watches Full ones for more
	closing func() error

	sizes  [datagram.MaxBatch]int // bytes of the datagrams that Flush sends, each with all before
	stripe int                    // that is received from
	taken  int                    // bytes of what was received
	sink   fabric.SlotSink
	slot   wire.Slot

	sent, received, dropped, bytesIn, bytesOut atomic.Uint64
}

// DatapathConfig says what a Datapath is made of.
type DatapathConfig struct {
	Sockets []*datagram.Socket // connected, by stripe
	Seals   []Seals            // likewise; nil: there are no tags
	Chunk   int                // most bytes of a payload
	Close   func() error       // gives the sockets back
	Network Network            // that has made the sockets; nil: the kernel
}

// Datapath returns the data path of a session after Ready has returned terms with that chunk. Its
// Close ends the session. An error leaves the session as it was.
func (s *Session) Datapath(chunk int) (*Datapath, error) {
	return NewDatapath(DatapathConfig{
		Sockets: s.sockets, Seals: s.seals, Chunk: chunk, Close: func() error { return s.Close(nil) },
		Network: s.hello.Network,
	})
}

// NewDatapath prepares a data path. An error leaves the sockets to the caller.
func NewDatapath(c DatapathConfig) (d *Datapath, err error) {
	if c.Seals == nil {
		c.Seals = make([]Seals, len(c.Sockets))
	}
	d = &Datapath{
		sockets: c.Sockets, seals: c.Seals, head: c.Seals[0].Head(), chunk: c.Chunk,
		rooms: make([]datagram.Room, len(c.Sockets)), closing: c.Close,
	}
	if c.Network == nil {
		c.Network = Kernel{}
	}
	if d.batch, err = datagram.NewBatch(d.head, c.Chunk); err != nil {
		return nil, err
	}
	if d.poller, err = c.Network.Poller(); err != nil {
		return nil, errors.Join(err, d.batch.Close())
	}
	for i, s := range d.sockets {
		if err := d.poller.Watch(s.FD(), i, unix.EPOLLIN); err != nil {
			return nil, errors.Join(err, d.poller.Close(), d.batch.Close())
		}
	}
	return d, nil
}

// Close implements fabric.Switch.
func (d *Datapath) Close() error { return errors.Join(d.release(), d.closing()) }

// release gives everything back but the sockets.
func (d *Datapath) release() error { return errors.Join(d.poller.Close(), d.batch.Close()) }

// Add implements fabric.Switch.
func (d *Datapath) Add(h *wire.Slot, payload []byte) bool {
	n, ok := d.seals[h.Stripe].Add(d.batch, h, payload)
	if !ok {
		return false
	}
	i, before := d.batch.Added()-1, 0
	if i > 0 {
		before = d.sizes[i-1]
	}
	d.sizes[i] = before + n
	return true
}

// Flush implements fabric.Switch.
func (d *Datapath) Flush(stripe int) (int, error) {
	sent, err := d.batch.Flush(d.sockets[stripe])
	if sent > 0 {
		d.sent.Add(uint64(sent))
		d.bytesOut.Add(uint64(d.sizes[sent-1]))
	}
	if failed := d.note(stripe, d.batch.Room()); failed != nil {
		return sent, failed
	}
	return sent, final(err)
}

// note keeps what room there is, and has the poller tell when a full socket has some.
func (d *Datapath) note(stripe int, r datagram.Room) error {
	if full := r == datagram.Full; full != (d.rooms[stripe] == datagram.Full) {
		events := uint32(unix.EPOLLIN)
		if full {
			events |= unix.EPOLLOUT
		}
		if err := d.poller.Change(d.sockets[stripe].FD(), stripe, events); err != nil {
			return err
		}
	}
	d.rooms[stripe] = r
	return nil
}

// final drops an error that says that nobody listens: that may be an old datagram's, or a lie; the
// silence that follows, or the session, decides.
func final(err error) error {
	if err != nil && datagram.Unreachable(err) {
		return nil
	}
	return err
}

// Receive implements fabric.Switch.
func (d *Datapath) Receive(stripe int, hint []byte, budget int, s fabric.SlotSink) (int, error) {
	if d.chunk < datagram.Straight || d.seals[stripe].Encrypt() {
		hint = nil
	}
	d.stripe, d.sink, d.taken = stripe, s, 0
	n, err := d.batch.Receive(d.sockets[stripe], hint, budget, d)
	if n > 0 {
		d.received.Add(uint64(n))
		d.bytesIn.Add(uint64(d.taken))
	}
	return n, final(err)
}

// Datagram implements datagram.Sink.
func (d *Datapath) Datagram(head, payload []byte) {
	d.taken += len(head) + len(payload)
	if !d.seals[d.stripe].Open(&d.slot, head, payload) || int(d.slot.Stripe) != d.stripe {
		d.dropped.Add(1)
		return
	}
	d.sink.Slot(&d.slot, payload)
}

// Sleep implements fabric.Switch. When it returns there may be room where there was none.
func (d *Datapath) Sleep(most time.Duration) {
	if slices.Contains(d.rooms, datagram.Congested) {
		most = min(most, datagram.Pause)
	}
	ready := d.poller.Wait(most)
	for i, r := range d.rooms {
		if r == datagram.Congested {
			d.rooms[i] = datagram.Free
		}
	}
	for i := range ready {
		if ready[i].Events&unix.EPOLLOUT != 0 {
			_ = d.note(int(ready[i].Fd), datagram.Free) // else it stays Full, and the next Flush says why
		}
	}
}

// Wake implements fabric.Switch.
func (d *Datapath) Wake() { d.poller.Wake() }

// Stats implements fabric.Switch.
func (d *Datapath) Stats() fabric.Stats {
	return fabric.Stats{
		SentBytes: d.bytesOut.Load(), SentChunks: d.sent.Load(), ReceivedBytes: d.bytesIn.Load(),
		ReceivedChunks: d.received.Load(),
		Dropped:        d.dropped.Load(), Refused: d.batch.Refused.Load(), Syscalls: d.batch.Syscalls.Load(),
	}
}
