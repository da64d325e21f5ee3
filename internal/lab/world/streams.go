package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
)

// streams is the fabric of the direct Reduce-Scatter, and of messages: fabric.Watched.
type streams struct {
	sleeper
	o              tcp.Options
	peers          []*flow // by rank; nil for this one
	looked         time.Time
	awake          func() // of Watch; world.mu guards it
	sent, received atomic.Uint64
}

// flow is the stream to a rank. What has arrived begins where memory is aligned as the stream is.
type flow struct {
	end  *end
	in   []byte
	from int // of in, in memory that is aligned
	err  error
}

// Streams implements hostnet.Network.
func (h *Host) Streams(o *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) {
		return nil, failing("epoll_create1", syscall.EMFILE)
	}
	t := &streams{sleeper: newSleeper(h), o: *o, peers: make([]*flow, o.Size)}
	for rank, c := range conns {
		e := endOf(c)
		e.bell = t.heard
		t.peers[rank] = &flow{end: e}
	}
	return t, nil
}

// Send implements fabric.Streams.
func (t *streams) Send(to int, b []byte) int {
	p := t.peers[to]
	if p.err != nil || len(b) == 0 {
		return 0
	}
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	if n := p.end.room(); n < len(b) {
		b = b[:n]
	}
	n, err := p.end.give(append([]byte(nil), b...))
	if err != nil {
		p.fail(err)
		return 0
	}
	t.sent.Add(uint64(n))
	return n
}

// fail keeps the first error.
func (p *flow) fail(err error) {
	var stall *sys.StallError
	switch {
	case p.err != nil:
	case errors.Is(err, io.EOF):
		p.err = fmt.Errorf("tcp: it closed its stream: %w", err)
	case errors.As(err, &stall):
		p.err = err
	default:
		p.err = fmt.Errorf("tcp: %w", err)
	}
}

// Peek implements fabric.Streams.
func (t *streams) Peek(from, limit int) []byte {
	p := t.peers[from]
	if len(p.in) < limit && p.err == nil {
		t.host.world.mu.Lock()
		b, err := p.end.take(streamMax)
		t.host.world.mu.Unlock()
		if len(b) > 0 {
			p.append(b)
			t.received.Add(uint64(len(b)))
		}
		if err != nil {
			p.fail(err)
		}
	}
	return p.in[:min(len(p.in), limit)]
}

// append adds bytes behind the ones that are there.
func (p *flow) append(b []byte) {
	at := p.from % 8
	all := make([]byte, 0, (at+len(p.in)+len(b)+7)/8*8)
	all = append(all, make([]byte, at)...)
	all = append(append(all, p.in...), b...)
	p.from, p.in = at, all[at:]
}

// Consume implements fabric.Streams.
func (t *streams) Consume(from, n int) {
	p := t.peers[from]
	p.in, p.from = p.in[n:], p.from+n
}

// Err implements fabric.Streams.
func (t *streams) Err(rank int) error {
	if p := t.peers[rank]; p != nil {
		return p.err
	}
	return nil
}

// Sleep implements fabric.Sleeper.
func (t *streams) Sleep(d time.Duration) {
	t.sleep(d)
	if now := time.Now(); t.o.Stall > 0 && now.Sub(t.looked) >= sys.StallPause(t.o.Stall) {
		t.looked = now
		t.host.world.mu.Lock()
		defer t.host.world.mu.Unlock()
		for _, p := range t.peers {
			if p == nil || p.err != nil {
				continue
			}
			if stall := p.end.stalled(t.o.Stall); stall != nil {
				p.fail(stall)
			}
		}
	}
}

// heard is called when something has changed. world.mu is held.
func (t *streams) heard() {
	if t.ring(); t.awake != nil {
		t.awake()
	}
}

// Watch implements fabric.Watched.
func (t *streams) Watch(d time.Duration, awake func()) time.Duration {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	select {
	case <-t.bell:
		return 0
	default:
		t.awake = awake
		return d
	}
}

// Unwatch implements fabric.Watched.
func (t *streams) Unwatch() {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	t.awake = nil
}

// Stats implements fabric.Streams.
func (t *streams) Stats() fabric.Stats {
	return fabric.Stats{SentBytes: t.sent.Load(), ReceivedBytes: t.received.Load()}
}

// Close implements fabric.Streams.
func (t *streams) Close() error {
	t.host.world.mu.Lock()
	defer t.host.world.mu.Unlock()
	for _, p := range t.peers {
		if p != nil {
			p.end.bell = nil
			p.end.close()
		}
	}
	return nil
}
