package sim

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Phase is a part of an operation at a rank (Khalilov et al., SC24, fig. 10).
type Phase uint8

// The phases.
const (
	Barrier   Phase = iota // from the post to the last message of the barrier
	Multicast              // from the first own chunk that the NIC gets to the last
	Receive                // from the first chunk that came to the last
	Fetch                  // from the first request for chunks to the last repair
	Handshake              // from the word that this rank has all to the completion
	phaseCount
)

// String names the phase.
func (p Phase) String() string {
	return [...]string{"barrier", "multicast", "receive", "fetch", "handshake"}[p]
}

// Mark says when a rank was in a phase of an operation of the script.
type Mark struct {
	Rank, Op int
	Phase    Phase
	Span
}

// phases are the spans of an operation at a rank; To is 0 where a phase did not occur.
type phases [phaseCount]Span

// note extends a phase to now.
func (n *rank) note(b *buffers, p Phase) {
	if !n.Trace || b == nil {
		return
	}
	s := &b.phases[p]
	if s.To == 0 {
		s.From = n.net.Now()
	}
	s.To = max(n.net.Now(), 1)
}

// markReceived notes what a message from another rank says of its operation.
func (n *rank) markReceived(m *wire.Control) {
	switch m.Kind {
	case wire.Ready:
		n.note(n.operation(m.Seq), Barrier)
	case wire.Repair:
		n.note(n.operation(m.Seq), Fetch)
	}
}

// markMessage notes what a message that the core sends says of its operation.
func (n *rank) markMessage(m *wire.Control) {
	switch m.Kind {
	case wire.Fetch:
		n.note(n.operation(m.Seq), Fetch)
	case wire.Done:
		n.note(n.operation(m.Seq), Handshake)
	}
}

// markDone keeps the phases of a completed operation.
func (n *rank) markDone(b *buffers) {
	if !n.Trace {
		return
	}
	if b.phases[Handshake].To != 0 {
		n.note(b, Handshake)
	}
	for p, s := range b.phases {
		if p == int(Multicast) && s.To == s.From { // all went to the NIC in one burst
			s.To++
		}
		if s.To > s.From {
			n.result.Marks = append(n.result.Marks, Mark{Rank: n.rank, Op: b.index, Phase: Phase(p), Span: s})
		}
	}
}
