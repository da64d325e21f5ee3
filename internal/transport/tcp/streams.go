package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Options describe one rank's end of the fabric.
type Options struct {
	Rank  int
	Size  int
	Conns map[int]net.Conn // to every other rank, of TCP; see Open
	// Stall is how long bytes may go unacknowledged before Err is a *sys.StallError; 0: for ever.
	Stall time.Duration
	DSCP  int // of sent packets, see sys.Mark
}

// Streams is one rank's end of the fabric. It implements fabric.Reader.
type Streams struct {
	poller  *sys.Poller
	streams []*stream // by rank; nil for this one
	misses  int       // calls that found nothing to do since the last look
	news    bool      // a look found something after the last Sleep
	stall   time.Duration
	looked  time.Time // for stalls

	syscalls, sentBytes, receivedBytes atomic.Uint64
}

var _ fabric.Reader = (*Streams)(nil)

// Open takes over the connections: it leaves o.Conns empty. It needs a poller's descriptors and one
// more. After an error o.Conns has all of them still, some as sys.Taken, to open again with or to
// close.
func Open(o Options) (*Streams, error) {
	t := &Streams{streams: make([]*stream, max(o.Size, 0)), stall: o.Stall}
	if err := t.open(&o); err != nil {
		t.streams = nil // o.Conns has their descriptors
		return nil, errors.Join(err, t.Close())
	}
	clear(o.Conns)
	return t, nil
}

func (t *Streams) open(o *Options) (err error) {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return fmt.Errorf("tcp: rank %d of %d: want a rank from 0 to one below the size", o.Rank, o.Size)
	}
	if t.poller, err = sys.NewPoller(); err != nil {
		return err
	}
	for rank := range t.streams {
		if rank == o.Rank {
			continue
		}
		if o.Conns[rank] == nil {
			return &fabric.PeerError{Peer: rank, Err: errors.New("tcp: there is no connection to it")}
		}
		line, err := record.Take(o.Conns, rank)
		if err == nil {
			err = sys.Mark(line.FD, o.DSCP)
		}
		if err != nil {
			return &fabric.PeerError{Peer: rank, Err: fmt.Errorf("tcp: %w", err)}
		}
		t.streams[rank] = &stream{line: line, ring: make([]byte, ringSize), readable: true, writable: true}
		if err := t.poller.Watch(line.FD, rank, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET); err != nil {
			return err
		}
	}
	return nil
}

// Send implements fabric.Streams.
func (t *Streams) Send(to int, b []byte) int {
	s := t.streams[to]
	if !s.writable {
		t.miss()
	}
	if !s.writable || len(b) == 0 {
		return 0
	}
	t.syscalls.Add(1)
	n, err := s.line.Send(b)
	switch {
	case errors.Is(err, unix.EAGAIN):
		s.writable = false
	case err != nil:
		s.fail(err)
	case n < len(b), s.line.Pending():
		s.writable = false
	}
	s.unacked = s.unacked || n > 0
	t.sentBytes.Add(uint64(n))
	return n
}

// Peek implements fabric.Streams.
func (t *Streams) Peek(from, limit int) []byte {
	s := t.streams[from]
	b := s.buffered()
	if len(b) >= limit {
		return b[:limit]
	}
	if !s.readable {
		t.miss()
	}
	if s.readable {
		t.syscalls.Add(1)
		t.receivedBytes.Add(uint64(s.fill()))
		b = s.buffered()
	}
	return b[:min(len(b), limit)]
}

// Read implements fabric.Reader.
func (t *Streams) Read(from int, b []byte) int {
	s := t.streams[from]
	if ready := s.buffered(); len(ready) > 0 {
		n := copy(b, ready)
		s.consumed += uint64(n)
		return n
	}
	if !s.readable {
		t.miss()
	}
	if !s.readable {
		return 0
	}
	t.syscalls.Add(1)
	n := s.receive(b)
	s.received += uint64(n)
	s.consumed += uint64(n)
	t.receivedBytes.Add(uint64(n))
	return n
}

// Consume implements fabric.Streams.
func (t *Streams) Consume(from, n int) {
	s := t.streams[from]
	if n < 0 || n > len(s.buffered()) {
		panic(fmt.Sprintf("tcp: %d bytes from rank %d consumed, %d were there", n, from, len(s.buffered())))
	}
	s.consumed += uint64(n)
}

// Err implements fabric.Streams. Bytes that arrived before the end may be left.
func (t *Streams) Err(rank int) error {
	if s := t.streams[rank]; s != nil {
		return s.err
	}
	return nil
}

// miss is called when a stream has nothing to do. After as many misses as
// there are streams, it looks at all of them at once: a busy agent makes one
// system call a round, not one a stream.
func (t *Streams) miss() {
	if t.misses++; t.misses < len(t.streams) {
		return
	}
	t.misses = 0
	t.Ready()
}

// Ready implements fabric.Polled.
func (t *Streams) Ready() bool {
	if ready := t.poller.Ready(); len(ready) > 0 {
		t.news = true
		t.mark(ready)
	}
	return t.news
}

func (t *Streams) mark(ready []unix.EpollEvent) {
	for i := range ready {
		s := t.streams[ready[i].Fd]
		if s.err != nil {
			continue
		}
		const end = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
		s.ending = s.ending || ready[i].Events&end != 0
		s.readable = s.readable || ready[i].Events&(unix.EPOLLIN|end) != 0
		s.writable = s.writable || ready[i].Events&(unix.EPOLLOUT|end) != 0
		s.flush()
	}
}

// Sleep implements fabric.Sleeper.
func (t *Streams) Sleep(d time.Duration) {
	if t.news {
		t.news = false
		return
	}
	t.mark(t.poller.Wait(d))
	t.checkStalls(time.Now())
}

// checkStalls fails the streams that stall. A rank that a stall holds up sleeps, so Sleep is where
// to look.
func (t *Streams) checkStalls(now time.Time) {
	if t.stall == 0 || now.Sub(t.looked) < sys.StallPause(t.stall) {
		return
	}
	t.looked = now
	for _, s := range t.streams {
		if s == nil || s.err != nil {
			continue
		}
		if err := s.stall.Check(s.line.FD, now, t.stall); err != nil {
			s.fail(err)
			t.news = true
		}
	}
}

// Wake implements fabric.Sleeper.
func (t *Streams) Wake() { t.poller.Wake() }

// Stats implements fabric.Streams.
func (t *Streams) Stats() fabric.Stats {
	s := fabric.Stats{SentBytes: t.sentBytes.Load(), ReceivedBytes: t.receivedBytes.Load(), Syscalls: t.syscalls.Load()}
	if t.poller != nil {
		s.Syscalls += t.poller.Syscalls.Load()
	}
	return s
}

// Close ends all streams. Only Stats and Wake may run at the same time or later.
func (t *Streams) Close() error {
	if t.poller == nil {
		return nil
	}
	var errs []error
	for _, s := range t.streams {
		if s != nil && s.line.FD >= 0 {
			errs = append(errs, unix.Close(s.line.FD))
			s.line.FD, s.readable, s.writable = -1, false, false
		}
	}
	return errors.Join(append(errs, t.poller.Close())...)
}
