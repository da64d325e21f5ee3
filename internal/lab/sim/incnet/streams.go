package incnet

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

const (
	room    = 32 << 10 // bytes of a stream that are sent and not read
	segment = 4 << 10  // bytes of a packet
)

// streams are a rank's ends of the streams to all others. They implement fabric.Streams.
type streams struct {
	*rank
	in   [][]byte // by rank: what has come and is not read
	sent []int    // by rank: bytes that are sent and not read there
}

var _ fabric.Streams = (*streams)(nil)

func newStreams(r *rank) *streams {
	p := r.s.Terms.Ranks
	return &streams{rank: r, in: make([][]byte, p), sent: make([]int, p)}
}

// bytes of a stream on their way.
type bytesFor struct {
	from, to *streams
	data     []byte
}

// Send implements fabric.Streams. It takes any amount, as a socket does.
func (t *streams) Send(to int, b []byte) int {
	n := min(len(b), room-t.sent[to], 1+t.s.rng.IntN(segment))
	if n <= 0 {
		return 0
	}
	t.sent[to] += n
	d := t.s.net.Packet()
	d.From, d.To, d.Group, d.Bytes = int32(t.number), int32(to), t.s.streamQueue, int32(n)
	d.Reliable = true
	d.Body = &bytesFor{t, t.s.ranks[to].streams, append([]byte(nil), b[:n]...)}
	t.s.net.Send(d)
	return n
}

// arrive gives a rank what has come to it.
func (b *bytesFor) arrive() {
	t := b.to
	t.in[b.from.number] = append(t.in[b.from.number], b.data...)
	t.s.progress = t.s.net.Now()
	t.round()
}

// Peek implements fabric.Streams.
func (t *streams) Peek(from, most int) []byte { return t.in[from][:min(most, len(t.in[from]))] }

// Consume implements fabric.Streams.
func (t *streams) Consume(from, n int) {
	t.in[from] = append([]byte(nil), t.in[from][n:]...) // aligned as it was
	peer := t.s.ranks[from]
	if peer.streams.sent[t.number] -= n; peer.streams.sent[t.number]+n == room {
		t.s.after(t.s.Net.Delay, peer.round)
	}
}

// Err implements fabric.Streams.
func (*streams) Err(int) error { return nil }

// Sleep implements fabric.Streams.
func (*streams) Sleep(time.Duration) {}

// Wake implements fabric.Streams.
func (*streams) Wake() {}

// Stats implements fabric.Streams.
func (*streams) Stats() fabric.Stats { return fabric.Stats{} }

// Close implements fabric.Streams.
func (*streams) Close() error { return nil }
