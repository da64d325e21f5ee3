package reduction

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Packet is the body of a network.Packet of a reduction.
type Packet struct {
	head    wire.Slot
	payload []byte
}

// post sends a body behind the header of a slot datagram, as a train if it is larger than a packet.
func (j *Job) post(from, to, tree int, class uint8, b *Packet) {
	n := len(b.payload)
	p := j.net.Packet()
	p.From, p.To, p.Group = int32(from), int32(to), int32(tree)
	p.Bytes = int32(wire.SlotSize + n) // bounded by the terms
	p.Count = int32(max(1, (n+j.packet-1)/j.packet))
	p.Class, p.Body = class, b
	j.net.Send(p)
}
