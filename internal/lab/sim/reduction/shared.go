package reduction

import "github.com/torch-mcast/torch-mcast/internal/lab/sim/network"

// Shared is a host on which a rank of a reduction shares the NIC with another endpoint, say a rank
// of an Allgather: what carries a *Packet is for the former, and so are odd wake-ups.
type Shared struct {
	Reduction *Host
	Other     network.Node // asks for even wake-ups only
}

// Receive hands a packet to whom it is for.
func (s *Shared) Receive(p *network.Packet) {
	if _, ours := p.Body.(*Packet); ours {
		s.Reduction.Receive(p)
		return
	}
	s.Other.Receive(p)
}

// Wake hands a wake-up to who asked for it.
func (s *Shared) Wake(tag uint64) {
	if tag&1 == 1 {
		s.Reduction.Wake(tag)
		return
	}
	s.Other.Wake(tag)
}
