package network

// Multicast as a packet's To sends it to all hosts but the sender.
const Multicast = -1

// Classes of packets, which are counted apart.
const (
	Data = iota
	Control
	Repair
	Other
	Classes
)

// Packet is what travels, as one packet or as a train of them.
type Packet struct {
	From, To int32 // nodes; To may be Multicast
	// Group is the multicast tree (modulo Trees), or what picks rail, path and
	// worker of a unicast packet.
	Group int32
	// Bytes is the payload of all packets of a train together; each takes
	// Header bytes more on the wire.
	Bytes int32
	Count int32 // packets that travel as one; 0: one
	// Reliable says that it arrives once and in order of its From and To,
	// whatever is lost, as over TCP or RC. It never overflows a receive queue.
	Reliable bool
	Class    uint8
	Body     any
	Tag      uint64

	id   int32
	refs int32 // events that hold it
}

// Node is a host or a switch that packets are addressed to.
type Node interface {
	// Receive hands over a packet that was taken off the queue. It is the
	// network's again when Receive returns, and is shared by all receivers of a
	// multicast, so nothing in it may be changed.
	Receive(p *Packet)
	// Wake says that a moment has come that was asked for with At.
	Wake(tag uint64)
}

const slabSize = 1 << 12

// Packet returns a packet from the pool, zeroed.
func (n *Network) Packet() *Packet {
	if len(n.free) == 0 {
		slab := make([]Packet, slabSize)
		base := int32(len(n.slabs)) * slabSize //nolint:gosec // bounded by memory
		for i := range slab {
			n.free = append(n.free, base+int32(slabSize-1-i)) //nolint:gosec // small
		}
		n.slabs = append(n.slabs, slab)
	}
	id := n.free[len(n.free)-1]
	n.free = n.free[:len(n.free)-1]
	p := n.packet(id)
	*p = Packet{id: id}
	return p
}

func (n *Network) packet(id int32) *Packet { return &n.slabs[id/slabSize][id%slabSize] }

// done drops one hold on a packet.
func (n *Network) done(p *Packet) {
	if p.refs--; p.refs <= 0 {
		p.Body = nil
		n.free = append(n.free, p.id)
	}
}
