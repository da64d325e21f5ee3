package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// barrier is an operation's dissemination barrier at one rank: in round i a rank tells rank+2^i
// that it and everybody it has heard of is ready. After ceil(log2 P) rounds everybody has heard of
// everybody. (For P a power of two this is as fast as recursive doubling; it works for any P.)
type barrier struct {
	entered bool   // this rank is ready
	open    bool   // everybody is; or the operation has none, and then entered stays false
	relay   bool   // this rank, or one that it has heard of, wants the operation relayed
	heard   uint32 // a bit for each round with a message that has come; none above the last round
	next    int    // first round not sent; all before it were heard, and 0 until this rank entered
}

// heardBefore reports whether the messages of all rounds before one have come.
func (b *barrier) heardBefore(round int) bool { return b.heard|^uint32(0)<<round == ^uint32(0) }

// hear notes that the message of a round has come, and whether somebody wants the operation relayed.
func (b *barrier) hear(round int, relay bool) {
	b.heard |= 1 << round
	b.relay = b.relay || relay
}

// enter notes that this rank is ready, and whether it wants the operation relayed.
func (b *barrier) enter(relay bool) {
	b.entered = true
	b.relay = b.relay || relay
}

// send sends what may be sent: a round once those before it were heard.
func (b *barrier) send(l *layout, out *outbox) {
	for rounds := l.topo.Rounds(); b.entered && b.next < rounds && b.heardBefore(b.next); b.next++ {
		m := l.control(wire.Ready)
		m.Round, m.Root, m.Bytes = uint8(b.next), uint16(l.root), uint64(l.bytes)
		if b.relay {
			m.Count = 1
		}
		out.send(l.topo.To(b.next), m)
	}
}

// passed reports whether everybody is ready.
func (b *barrier) passed(rounds int) bool { return b.entered && b.heard == 1<<rounds-1 }

// awaited returns the ranks that it waits for.
func (b *barrier) awaited(l *layout) (ranks []int) {
	for k := range l.topo.Rounds() {
		if b.heard&(1<<k) == 0 {
			ranks = append(ranks, l.topo.From(k))
		}
	}
	return ranks
}
