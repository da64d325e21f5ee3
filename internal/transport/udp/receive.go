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

// receiver is a socket that receives one subgroup.
type receiver struct {
	fd      int
	looks   int // calls to come that look at the first header before they receive
	message int // bytes of the last message, or of longer ones not long before
}

const (
	// lookOn is how many guesses in a row must come true until they are trusted without a look. Roots
	// that send at once do so in bursts, which are shorter as a rule.
	lookOn = 64
	// lookFrom is how many bytes a message must have at least for a look to cost less than moving it.
	lookFrom = 8 << 10
)

// receive hands what a socket has to the sink: about budget datagrams at most. It returns how many
// that were, and whether more may be there.
func (g *Gather) receive(r *receiver, s fabric.Sink, budget int) (n int, more bool) {
	for more = true; more && n < budget; {
		var got int
		if got, more = g.call(r, s, budget-n); got == 0 {
			break
		}
		n += got
	}
	return n, more
}

// call makes one call to the kernel that receives, and hands the datagrams to the sink.
func (g *Gather) call(r *receiver, s fabric.Sink, most int) (n int, more bool) {
	var guess fabric.Expected
	if !g.seals.Encrypts() { // an encrypted payload has no place before it is decrypted where it was received
		guess = s.Expect(nil)
	}
	looks := r.looks > 0 && r.message >= lookFrom && len(guess.Dst) > 0
	if looks && !g.look(r, s, &guess) {
		return 0, false
	}
	if looks || g.use.Merge {
		most = 1 // a merged message has many
	}
	if e := g.in.Receive(r.fd, g.use, guess.Dst, g.chunk, most); e != 0 {
		if e != unix.EAGAIN && e != unix.ENOMEM {
			g.Note(fmt.Errorf("receive multicast from %s: %w", g.options.Interface.Name, e))
		}
		return 0, e != unix.EAGAIN
	}
	r.message = max(g.in.Longest(), r.message/2)
	var d batch.Datagram
	for g.in.Next(&d) {
		n++
		if g.noted == len(g.arrivals) {
			g.deliver(s) // All payloads so far have left wrong places already.
		}
		g.arrived(r, &guess, &d)
	}
	g.deliver(s)
	return n, !g.in.Drained()
}

// look replaces a guess by what the first header in the queue says, where that is something else. It
// returns false if the queue is empty.
func (g *Gather) look(r *receiver, s fabric.Sink, guess *fabric.Expected) bool {
	head, e := g.in.Peek(r.fd)
	h := &g.next
	switch {
	case e == unix.EAGAIN:
		return false
	case e != 0 || !g.decode(h, head): // receiving it tells
	case h.Root == guess.Root && h.Seq == guess.Seq && h.PSN == guess.PSN:
		r.looks--
	default:
		*guess, r.looks = s.Expect(h), lookOn
	}
	return true
}

// arrived notes a datagram. A payload that was read to a place where it does not belong leaves it
// now, before deliver moves anything there.
func (g *Gather) arrived(r *receiver, guess *fabric.Expected, d *batch.Datagram) {
	a := &g.arrivals[g.noted]
	if len(d.Payload) > g.chunk || len(d.Head) < g.options.Head() || !g.decode(&a.head, d.Head) {
		g.stats.dropped.Add(1)
		return
	}
	if g.seals != nil && !g.seals.Open(uint32(a.head.Root), a.head.Seq, d.Head, d.Payload) {
		g.CountForged(1)
		return
	}
	a.guessed = d.Place >= 0
	if a.guessed && (a.head.Root != guess.Root || a.head.Seq != guess.Seq || a.head.PSN-guess.PSN != uint32(d.Place)) {
		g.in.Aside(d)
		r.looks = lookOn
	}
	a.payload = d.Payload
	g.noted++
}

// decode reads a header and checks what the socket filter promised.
func (g *Gather) decode(h *wire.Data, b []byte) bool {
	return h.Get(b) == nil && h.Job == g.job && int(h.Root) < g.size && int(h.Root) != g.rank
}

// deliver hands the noted datagrams to the sink. It counts them first: the sink completes operations,
// and the caller that waits for one may look at the counters at once.
func (g *Gather) deliver(s fabric.Sink) {
	arrivals := g.arrivals[:g.noted]
	bytes := 0
	for i := range arrivals {
		bytes += g.options.Head() + len(arrivals[i].payload)
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
