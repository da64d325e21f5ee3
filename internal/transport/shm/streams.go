package shm

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// stretch is how many bytes Send copies before it publishes them: small enough
// that the receiver works while the sender copies on, and finds them in cache.
const stretch = 64 << 10

// Streams are the byte streams of a region, one for each ordered pair of
// ranks. Peek shows the shared memory itself. It implements fabric.Streams.
type Streams struct {
	win     *Region
	closed  bool // guarded by win.mu
	bells   []doorbell
	sleeper sleeper
	tally   tally

	out    []outStream // by rank; the own entry stays empty
	in     []inStream
	broken []error
}

var (
	_ fabric.Puller = (*Streams)(nil)
	_ fabric.Rester = (*Streams)(nil)
	_ fabric.Polled = (*Streams)(nil)
)

// stream is a ring of bytes with one writer and one reader. Positions count bytes.
type stream struct {
	head, tail *atomic.Uint64
	ring       []byte
}

type outStream struct {
	stream
	at   uint64 // next byte to write
	read uint64 // the reader's position, as last seen
	full bool   // the last Send was refused in part
}

type inStream struct {
	stream
	at   uint64 // next byte to consume
	seen uint64 // head when Peek or Sleep last looked
}

func newStreams(w *Region, set int) *Streams {
	p, size := w.lay.places().streams[set], w.lay.Size
	s := &Streams{
		win: w, bells: make([]doorbell, size), out: make([]outStream, size), in: make([]inStream, size),
		broken: make([]error, size),
	}
	pair := func(from, to int) stream {
		words := p.positions + (from*size+to)*2*line
		i := from*(size-1) + to
		if to > from {
			i--
		}
		return stream{
			head: word64(w.mem, words), tail: word64(w.mem, words+line), ring: w.mem[p.bytes+i*p.ring:][:p.ring],
		}
	}
	for r := range size {
		s.bells[r] = newDoorbell(w.mem, p.bells+r*line)
		if r != w.rank {
			s.out[r].stream = pair(w.rank, r)
			s.in[r].stream = pair(r, w.rank)
		}
	}
	s.sleeper.init(s.bells[w.rank], size)
	return s
}

// Send copies as much of b as the stream has room for.
func (s *Streams) Send(to int, b []byte) int {
	o := &s.out[to]
	var sent int
	var calls uint64
	for sent < len(b) && s.broken[to] == nil {
		room := uint64(len(o.ring)) - (o.at - o.read)
		if room < uint64(min(len(b)-sent, stretch)) {
			o.read = o.tail.Load()
			room = uint64(len(o.ring)) - (o.at - o.read)
			if room > uint64(len(o.ring)) {
				s.broken[to] = fmt.Errorf("shm: it has read %d bytes of a stream that holds %d to %d", o.read,
					o.at-uint64(len(o.ring)), o.at)
				break
			}
			if room == 0 {
				break
			}
		}
		at := int(o.at % uint64(len(o.ring)))
		n := copy(o.ring[at:], b[sent:sent+min(len(b)-sent, int(room), stretch)])
		sent += n
		o.at += uint64(n)
		o.head.Store(o.at)
		calls += s.bells[to].ring(forData)
	}
	o.full = sent < len(b)
	s.tally.sent(0, uint64(sent), calls)
	return sent
}

// Peek returns a part of the shared memory. See fabric.Streams.
func (s *Streams) Peek(from, max int) []byte {
	i := &s.in[from]
	if s.broken[from] != nil {
		return nil
	}
	i.seen = i.head.Load()
	n := i.seen - i.at
	if n > uint64(len(i.ring)) {
		s.broken[from] = fmt.Errorf("shm: it has sent %d bytes into a stream of %d that is read up to %d", n+i.at,
			len(i.ring), i.at)
		return nil
	}
	at := int(i.at % uint64(len(i.ring)))
	return i.ring[at:min(at+min(int(n), max), len(i.ring))]
}

// Consume frees bytes that Peek returned. The sender may overwrite them at once.
func (s *Streams) Consume(from, n int) {
	if n == 0 {
		return
	}
	i := &s.in[from]
	i.at += uint64(n)
	i.tail.Store(i.at)
	s.tally.received(0, uint64(n), 0, s.bells[from].ring(forRoom))
}

// Err returns what a rank did to break its streams, or nil.
func (s *Streams) Err(rank int) error { return s.broken[rank] }

// Sleep looks again, then yields, then sleeps on a futex.
func (s *Streams) Sleep(d time.Duration) {
	reason := forData
	for i := range s.out {
		if s.out[i].full {
			reason |= forRoom
		}
	}
	s.tally.syscalls(s.sleeper.sleep(d, reason, s))
	for r := range s.in {
		if i := &s.in[r]; i.head != nil {
			i.seen = i.head.Load()
		}
	}
}

// Rest implements fabric.Rester: arrivals stay in the region until they are asked for.
func (s *Streams) Rest(func()) bool { return true }

// Rouse implements fabric.Rester.
func (s *Streams) Rouse() {}

// Wake ends a Sleep, now or the next one.
func (s *Streams) Wake() { s.win.wake(&s.sleeper, &s.closed) }

// Ready implements fabric.Polled.
func (s *Streams) Ready() bool { return s.sleeper.woken.Load() || s.ready() }

// ready tells whether anything changed since Peek, Send and Sleep last looked.
func (s *Streams) ready() bool {
	for r := range s.in {
		if s.in[r].head == nil || s.broken[r] != nil {
			continue
		}
		if s.in[r].head.Load() != s.in[r].seen || s.out[r].full && s.out[r].tail.Load() != s.out[r].read {
			return true
		}
	}
	return false
}

// Stats may be called from any goroutine.
func (s *Streams) Stats() fabric.Stats { return s.tally.stats() }

// Close gives up the region, and with it the bytes that Peek returned. The Gather of
// the same region stays.
func (s *Streams) Close() error { return s.win.release(&s.closed) }
