package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// barrier is an operation's dissemination barrier at one rank. In round i a rank tells rank+2^i that it is ready, and
// all ranks that it knows to be ready. After ceil(log2 P) rounds each rank knows that all are. (For P a power of two
// this is as fast as recursive doubling; it works for any P.)
type barrier struct {
	entered  bool   // this rank is ready
	open     bool   // all ranks are; or the operation has no barrier, and then entered stays false
	relay    bool   // this rank, or one that is known to be ready, wants the operation relayed
	received uint32 // a bit for each round with a message that has come; none above the last round
	next     int    // first round not sent; all before it were received, and 0 until this rank entered
}

// receivedBefore reports whether the messages of all rounds before one have come.
func (b *barrier) receivedBefore(round int) bool { return b.received|^uint32(0)<<round == ^uint32(0) }

// take notes that the message of a round has come, and whether its sender wants the operation relayed.
func (b *barrier) take(round int, relay bool) {
	b.received |= 1 << round
	b.relay = b.relay || relay
}

// enter notes that this rank is ready, and whether it wants the operation relayed.
func (b *barrier) enter(relay bool) {
	b.entered = true
	b.relay = b.relay || relay
}

// send sends what may be sent: a round once the ones before it were received.
func (b *barrier) send(l *layout, out *outbox) {
	for rounds := l.topo.Rounds(); b.entered && b.next < rounds && b.receivedBefore(b.next); b.next++ {
		m := l.control(wire.Ready)
		m.Round, m.Root, m.Bytes = uint8(b.next), uint16(l.root), uint64(l.bytes)
		if b.relay {
			m.Count = 1
		}
		out.send(l.topo.To(b.next), m)
	}
}

// passed reports whether all ranks are ready.
func (b *barrier) passed(rounds int) bool { return b.entered && b.received == 1<<rounds-1 }

// awaited returns the ranks that it waits for.
func (b *barrier) awaited(l *layout) (ranks []int) {
	for k := range l.topo.Rounds() {
		if b.received&(1<<k) == 0 {
			ranks = append(ranks, l.topo.From(k))
		}
	}
	return ranks
}
