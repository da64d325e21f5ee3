package incnet

import (
	"bytes"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

const (
	room    = 32 << 10 // bytes of a stream that are sent and not read
	segment = 4 << 10  // bytes of a packet
)

// streams are a rank's ends of the streams to all others. They implement fabric.Streams.
type streams struct {
	network.Idle
	*rank
	in   [][]byte // by rank: what has come and is not read
	sent []int    // by rank: bytes that are sent and not read there
}

var _ fabric.Streams = (*streams)(nil)

func newStreams(r *rank) *streams {
	p := r.s.Terms.Ranks
	return &streams{rank: r, in: make([][]byte, p), sent: make([]int, p)}
}

// Send implements fabric.Streams. It takes any amount, as a socket does.
func (t *streams) Send(to int, b []byte) int {
	n := min(len(b), room-t.sent[to], 1+t.s.rng.IntN(segment))
	if n <= 0 {
		return 0
	}
	t.sent[to] += n
	b = bytes.Clone(b[:n])
	t.s.post(t.number, to, t.s.streamQueue, n, true, func() { t.s.ranks[to].streams.arrive(t.number, b) })
	return n
}

// arrive gives a rank what has come to it.
func (t *streams) arrive(from int, b []byte) {
	t.in[from] = append(t.in[from], b...)
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
