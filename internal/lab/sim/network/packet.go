package network

import "fmt"

// Multicast as a packet's To sends it along its Group's tree to all hosts but
// the sender.
const Multicast = -1

// Classes of packets, which are counted apart. The network does not care what
// they mean.
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
	// Group is the multicast tree (modulo Trees), or what picks rail (modulo
	// Rails) and, with From and To, the path of a unicast packet. It picks the
	// worker of either (modulo Workers).
	Group int32
	// Bytes is the payload of all packets of a train together; each takes
	// Header bytes more on the wire.
	Bytes int32
	Count int32 // packets that travel as one; 0: one
	// Reliable says that the packet arrives once and in order of its From and To,
	// under any losses, as over TCP or RC. A loss costs RTO, doubling, and the
	// packet's bytes again. It never overflows a receive queue. Only unicast.
	Reliable bool
	Class    uint8
	Body     any    // the endpoint's own
	Tag      uint64 // the endpoint's own, instead of a Body that is allocated

	id     int32
	refs   int32 // events and queues that hold it
	wire   int32 // bytes on the wire
	worker int32
	epoch  int32 // of From and To, summed
	share  int32 // number of the Share that sent it
	flow   int32 // of a reliable packet
	seq    uint32
	tries  uint32 // losses so far
	since  Time   // when it was sent first
	path   uint64 // hash that picks among equal ports
	landed int64  // when a held packet had arrived, ps
}

// Node is a host or a switch that packets are addressed to.
type Node interface {
	// Receive hands over a packet that was taken off the queue. It is the
	// network's again when Receive returns, and is shared by all receivers of a
	// multicast, so nothing in it may be changed. A duplicate is a second call.
	Receive(p *Packet)
	// Wake says that a moment has come that was asked for with At.
	Wake(tag uint64)
}

// slabSize is how many packets the pool grows by. They stay where they are.
const slabSize = 1 << 10

// Packet returns a packet from the pool, zeroed, to be handed to Send.
func (n *Network) Packet() *Packet {
	if len(n.free) == 0 {
		base := len(n.slabs) * slabSize
		n.slabs = append(n.slabs, make([]Packet, slabSize))
		for i := range slabSize {
			n.free = append(n.free, int32(base+slabSize-1-i)) // bounded by memory
		}
	}
	id := n.free[len(n.free)-1]
	n.free = n.free[:len(n.free)-1]
	p := n.packet(id)
	*p = Packet{id: id}
	return p
}

func (n *Network) packet(id int32) *Packet { return &n.slabs[id/slabSize][id%slabSize] }

// InFlight returns how many packets are neither delivered nor lost for good at
// every receiver, and how many were taken from the pool and not sent, together.
func (n *Network) InFlight() int { return len(n.slabs)*slabSize - len(n.free) }

// done drops one hold on a packet.
func (n *Network) done(p *Packet) {
	if p.refs--; p.refs == 0 {
		p.Body = nil
		n.free = append(n.free, p.id)
	}
}

// Send sends a packet from its From, now, and takes it over. It panics when
// the packet can go nowhere, which is a mistake of the caller.
func (n *Network) Send(p *Packet) {
	if p.refs != 0 || p.From < 0 || int(p.From) >= n.tree.Nodes || p.To < Multicast || int(p.To) >= n.tree.Nodes ||
		p.Bytes < 0 || p.Count < 0 || p.Class >= Classes || p.Reliable && p.To == Multicast {
		panic(fmt.Sprintf("network: Send of %+v; allowed are nodes 0 to %d, To also Multicast unless Reliable, "+
			"Bytes and Count not negative, Class below %d, a packet once", *p, n.tree.Nodes-1, Classes))
	}
	p.refs, p.since = 1, n.now
	p.Count = max(1, p.Count)
	p.wire = p.Bytes + Header*p.Count
	p.worker = int32(uint32(p.Group) % uint32(n.Workers))
	from := &n.state[p.From]
	p.epoch = from.epoch
	if !from.dead {
		if p.To != Multicast {
			p.epoch += n.state[p.To].epoch
			p.path = scramble(uint64(uint32(p.From))<<32|uint64(uint32(p.To)), uint64(uint32(p.Group)))
		}
		if p.Reliable {
			n.enlist(p)
		}
		n.leaves(p)
	}
	n.done(p)
}

// scramble spreads two words over one.
func scramble(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// start puts a packet on its way at its From.
func (n *Network) start(p *Packet) {
	from := int(p.From)
	if p.From == p.To { // no link, but the receive path
		if from < len(n.hosts) {
			n.push(ps(n.now), event{kind: again, port: n.links[n.up(p)].reverse, n: 1}, p)
		} else {
			down, _ := n.tree.Downlinks(from)
			n.push(ps(n.now), event{kind: deliver, port: n.links[down].reverse, n: 1}, p)
		}
		return
	}
	n.forward(p, from, -1, 0)
}

// up returns the port of a host through which a packet leaves it.
func (n *Network) up(p *Packet) int {
	rail := int(uint32(p.Group) % uint32(n.tree.Planes()))
	if int(p.To) >= len(n.hosts) {
		rail = n.tree.Rail(int(p.To))
	}
	return n.tree.Up(int(p.From), rail)
}
