package reduction

import (
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Packet is the body of a network.Packet of a reduction. The chunks of a run share one, and the
// network.Packet's Tag says which of them it is; everything else has one of its own.
type Packet struct {
	run     *innetwork.Run // of contributions of a host, or nil
	rank    int            // whose
	head    wire.Slot
	payload []byte
}

// stripe returns which one it is of.
func (b *Packet) stripe() int {
	if b.run != nil {
		return int(b.run.Head.Stripe)
	}
	return int(b.head.Stripe)
}

// post sends a body of n bytes behind the header of a slot datagram, as a train
// if it is larger than a packet.
func (j *Job) post(from, to, tree int, class uint8, n int, tag uint64, body *Packet) {
	p := j.net.Packet()
	p.From, p.To, p.Group = int32(from), int32(to), int32(tree)
	p.Bytes = int32(wire.SlotSize + n) // bounded by the terms
	p.Count = int32(max(1, (n+j.packet-1)/j.packet))
	p.Class, p.Tag, p.Body = class, tag, body
	j.net.Send(p)
}

// keep sends what a member says of a run that it keeps.
func (j *Job) keep(from, to, tree int, class uint8, run *innetwork.Run) {
	head, k := run.Kept(run.Count)
	body := make([]byte, wire.SlotKeptSize)
	j.post(from, to, tree, class, k.Put(body), 0, &Packet{head: head, payload: body})
}

// report sends a status.
func (j *Job) report(from, to, tree int, h wire.Slot, st wire.SlotStatus) {
	body := make([]byte, wire.SlotBodySize+len(st.Held))
	j.post(from, to, tree, network.Control, st.Put(body), 0, &Packet{head: h, payload: body})
}

// open returns the header and elements of what has arrived.
func (j *Job) open(b *Packet, tag uint64) (wire.Slot, []byte) {
	if b.run == nil {
		return b.head, b.payload
	}
	i := int(tag) // less than a run has chunks
	n := min(b.run.Step, b.run.Bytes-i*b.run.Step)
	return b.run.Header(i), j.inputs.of(b.rank, b.run.Owner, b.run.Offset+i*b.run.Step, n)
}
