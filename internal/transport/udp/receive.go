package udp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// arrival is a chunk that lies in the inbox, or where it was expected.
type arrival struct {
	head    wire.Data
	payload []byte
	guessed bool // it was received to some expected place, perhaps not its own
}

// receive makes one call to the kernel and hands what it brought to the sink.
// It returns how many datagrams that were, and whether more may be in the socket.
func (g *Gather) receive(fd int, s fabric.Sink, budget int) (n int, more bool) {
	if g.use.Merge {
		budget = 1 // one message has many
	}
	guess := s.Expect()
	if e := g.in.Receive(fd, g.use, guess.Dst, g.chunk, budget); e != 0 {
		if e != unix.EAGAIN && e != unix.ENOMEM {
			g.Note(fmt.Errorf("receive multicast from %s: %w", g.options.Interface.Name, e))
		}
		return 0, e != unix.EAGAIN
	}
	var d batch.Datagram
	for g.in.Next(&d) {
		n++
		if g.noted == len(g.arrivals) {
			g.deliver(s) // Whatever had a place has left it by now, or belongs there.
		}
		g.arrived(&guess, &d)
	}
	g.deliver(s)
	return n, !g.in.Drained()
}

// arrived notes a datagram. A payload that was read to a place where it does not belong leaves it
// now, before deliver moves anything there.
func (g *Gather) arrived(guess *fabric.Expected, d *batch.Datagram) {
	a := &g.arrivals[g.noted]
	if len(d.Payload) > g.chunk || !g.decode(&a.head, d.Head) {
		g.stats.dropped.Add(1)
		return
	}
	a.guessed = d.Place >= 0
	if a.guessed && (a.head.Root != guess.Root || a.head.Seq != guess.Seq || a.head.PSN-guess.PSN != uint32(d.Place)) {
		g.in.Aside(d)
	}
	a.payload = d.Payload
	g.noted++
}

// decode reads a header and checks what the socket filter promised.
func (g *Gather) decode(h *wire.Data, b []byte) bool {
	return h.Get(b) == nil && h.Job == g.job && int(h.Root) < g.size && int(h.Root) != g.rank
}

// deliver hands the noted datagrams to the sink. It counts them first: the sink completes operations,
// and who waited for one may look at the counters at once.
func (g *Gather) deliver(s fabric.Sink) {
	arrivals := g.arrivals[:g.noted]
	bytes := 0
	for i := range arrivals {
		bytes += wire.DataSize + len(arrivals[i].payload)
	}
	g.stats.receivedChunks.Add(uint64(g.noted))
	g.stats.receivedBytes.Add(uint64(bytes))
	for i := range arrivals {
		a := &arrivals[i]
		g.place(s, &a.head, a.payload, a.guessed)
		a.payload = nil
	}
	g.noted = 0
}

// place hands one datagram to the sink and moves its payload, unless it was
// received in its place. guessed says that it was received in some place.
func (g *Gather) place(s fabric.Sink, h *wire.Data, payload []byte, guessed bool) {
	to, verdict, _ := s.Accept(h, len(payload))
	if verdict != fabric.Take {
		g.stats.dropped.Add(1)
		return
	}
	if len(payload) > 0 && &to[0] != &payload[0] {
		copy(to, payload)
		if guessed {
			g.stats.misplaced.Add(1)
		}
	}
	s.Received(h)
}
