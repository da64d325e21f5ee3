package world

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// memoryStreams are the streams of a region as one of its ranks has them: fabric.Streams.
type memoryStreams struct {
	sleeper
	copier
	*share
	set   int    // reductions or messages
	seen  []int  // bytes of each stream that were there when Peek or Sleep last looked
	full  []bool // the last Send was refused in part
	stats fabric.Stats
}

// pipe is a ring of bytes with one writer and one reader.
type pipe struct {
	ring       []byte
	head, tail int     // bytes written and consumed so far
	there      int     // of those written: copied
	copying    []piece // the rest
}

type piece struct {
	end int // the number of bytes, it included
	at  time.Time
}

func newMemoryStreams(s *share, set int) *memoryStreams {
	return &memoryStreams{
		sleeper: newSleeper(s.rank), share: s, set: set, seen: make([]int, s.lay.Size), full: make([]bool, s.lay.Size),
	}
}

// look notes what has been copied by now, and returns how many bytes are there.
func (p *pipe) look(now time.Time) int {
	for len(p.copying) > 0 && !p.copying[0].at.After(now) {
		p.there = p.copying[0].end
		p.copying = p.copying[1:]
	}
	return p.there
}

// Send implements fabric.Streams.
func (t *memoryStreams) Send(to int, b []byte) (sent int) {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	p := &t.pipes[t.set][t.member][to]
	if p.ring == nil {
		p.ring = make([]byte, min(t.lay.Stream, streamRoom))
	}
	for sent < len(b) && !t.still() {
		at := p.head % len(p.ring)
		n := copy(p.ring[at:min(len(p.ring), at+len(p.ring)-(p.head-p.tail))], b[sent:])
		if n == 0 {
			break
		}
		p.head += n
		sent += n
	}
	if t.full[to] = sent < len(b); sent > 0 {
		p.copying = append(p.copying, piece{p.head, t.copied(sent)})
		t.stats.SentBytes += uint64(sent)
		if peer := t.shares[to].streams[t.set]; peer != nil {
			peer.ring()
		}
	}
	return sent
}

// Peek implements fabric.Streams.
func (t *memoryStreams) Peek(from, most int) []byte {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	p := &t.pipes[t.set][from][t.member]
	if p.ring == nil || t.still() {
		return nil
	}
	t.seen[from] = p.look(time.Now())
	at := p.tail % len(p.ring)
	return p.ring[at:min(at+min(p.there-p.tail, most), len(p.ring))]
}

// Consume implements fabric.Streams.
func (t *memoryStreams) Consume(from, n int) {
	if n == 0 {
		return
	}
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	t.pipes[t.set][from][t.member].tail += n
	t.stats.ReceivedBytes += uint64(n)
	if peer := t.shares[from].streams[t.set]; peer != nil && peer.full[t.member] {
		peer.ring()
	}
}

// Err implements fabric.Streams: memory does not break.
func (t *memoryStreams) Err(int) error { return nil }

// Sleep implements fabric.Sleeper.
func (t *memoryStreams) Sleep(d time.Duration) {
	w := t.host.world
	w.mu.Lock()
	if !t.still() {
		d = t.soonest(time.Now(), d)
	}
	w.mu.Unlock()
	t.sleep(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	for from := range t.seen {
		t.seen[from] = t.pipes[t.set][from][t.member].look(time.Now())
	}
}

// soonest returns how long it takes at least, most at most, until there are bytes that nobody has
// looked at, or room for some that were refused.
func (t *memoryStreams) soonest(now time.Time, most time.Duration) time.Duration {
	for peer := range t.seen {
		if in := &t.pipes[t.set][peer][t.member]; in.look(now) != t.seen[peer] {
			return 0
		} else if len(in.copying) > 0 {
			most = min(most, in.copying[0].at.Sub(now))
		}
		if out := &t.pipes[t.set][t.member][peer]; t.full[peer] && out.head-out.tail < len(out.ring) {
			t.full[peer] = false
			return 0
		}
	}
	return most
}

// Stats implements fabric.Streams.
func (t *memoryStreams) Stats() fabric.Stats {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	return t.stats
}

// Close implements fabric.Streams.
func (t *memoryStreams) Close() error { return nil }
