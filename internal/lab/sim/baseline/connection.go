package baseline

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// connection carries messages from a host to another, or, for Gleam, to all
// others. Both ends live here: sender on one, an inbox on each of the others;
// nothing but packets tells one end of the other's state.
type connection struct {
	from   *host
	to     int32 // a host, or network.Multicast
	group  int32 // Packet.Group: path, rail and worker, or the multicast tree
	rail   int
	number uint64 // among from's connections

	out    outbox
	end    int64 // PSNs given to messages so far
	top    int64 // PSNs sent at least once
	at     int64 // number of the message that was sent from last
	listed bool  // in the rail's list

	sender  sender  // nil: the network's reliable class needs none
	inboxes []inbox // one, or of a multicast one for each host

	armed    bool // a Wake is due
	progress network.Time
	backoff  int // timeouts since the last progress
}

// inbox is the receiving end.
type inbox struct {
	receiver receiver // nil with the reliable class
	next     int64    // reliable class: the next PSN
	message  int64    // number of the message that is not yet complete
}

// Packet.Tag of data: PSN and serial. Of feedback: expected PSN, serial, and whether it is a NACK.
const (
	tagBits = 31
	tagMask = 1<<tagBits - 1
	tagNack = 1 << 63
)

func pack(high, low int64) uint64 { return uint64(high&tagMask)<<tagBits | uint64(low&tagMask) }
func unpack(tag uint64) (high, low int64) {
	return int64(tag >> tagBits & tagMask), int64(tag & tagMask) // 31 bits
}

func (f feedback) tag() uint64 {
	t := pack(f.expected, f.serial)
	if f.nack {
		t |= tagNack
	}
	return t
}

func feedbackOf(tag uint64) feedback {
	expected, serial := unpack(tag)
	return feedback{nack: tag&tagNack != 0, expected: expected, serial: serial}
}

func newConnection(from *host, to int32, group int32, rail int) *connection {
	r := from.run
	c := &connection{from: from, to: to, group: group, rail: rail, number: uint64(len(from.connections))}
	c.inboxes = make([]inbox, 1)
	if to == network.Multicast {
		c.inboxes = make([]inbox, len(r.hosts))
	}
	switch r.Transport {
	case GoBackN:
		c.sender = &goBackSender{window: int64(r.Window)}
	case SelectiveRepeat:
		c.sender = newSelectiveSender(r.Window, r.Reorder)
	default:
		return c
	}
	for i := range c.inboxes {
		if r.Transport == GoBackN {
			c.inboxes[i].receiver = &goBackReceiver{ackEvery: r.AckEvery}
		} else {
			c.inboxes[i].receiver = newSelectiveReceiver(r.Window, r.AckEvery)
		}
	}
	return c
}

// add queues a message.
func (c *connection) add(m message) {
	size := int64(c.from.run.Packet)
	m.packets = int32((m.bytes + size - 1) / size) // checked below
	m.psn = c.end
	c.end += int64(m.packets)
	if c.end > tagMask {
		c.from.run.fail(fmt.Errorf("baseline: more than %d packets from rank %d to %d", tagMask, c.from.rank, c.to))
	}
	c.out.add(m)
}

func (c *connection) sendable() bool {
	if c.sender == nil {
		return c.top < c.end
	}
	return c.sender.sendable(c.end)
}

// send sends the next packet, or train, and reports whether it ended its message.
func (c *connection) send() (last bool) {
	r := c.from.run
	psn, serial, count := c.top, int64(0), int64(1)
	if c.sender != nil {
		if c.sender.acknowledged() == c.top {
			c.progress, c.backoff = r.net.Now(), 0 // nothing was in flight
		}
		psn, serial = c.sender.take(c.end)
	}
	c.at = c.out.find(psn, c.at)
	m := c.out.at(c.at)
	if c.sender == nil {
		count = min(int64(r.Train), m.end()-psn)
	}
	size := int64(r.Packet)
	p := r.net.Packet()
	p.From, p.To, p.Group = c.from.rank, c.to, c.group
	p.Bytes = int32(min(count*size, m.bytes-(psn-m.psn)*size))
	p.Count = int32(count)
	p.Reliable = c.sender == nil
	p.Class = network.Data
	p.Body, p.Tag = c, pack(psn, serial)
	r.result.Packets += count
	if psn < c.top {
		p.Class = network.Repair
		r.result.Retransmitted++
	}
	c.top = max(c.top, psn+count)
	last = psn+count == m.end()
	r.net.Send(p)
	if c.sender != nil && !c.armed {
		c.armed = true
		r.net.At(r.net.Now()+r.RTO, int(c.from.rank), tagTimer|c.number)
	}
	return last
}

// receive takes in a packet at a host.
func (c *connection) receive(h *host, p *network.Packet) {
	in := &c.inboxes[0]
	if c.to == network.Multicast {
		in = &c.inboxes[h.rank]
	}
	psn, serial := unpack(p.Tag)
	if in.receiver == nil {
		if psn != in.next {
			h.run.fail(fmt.Errorf("baseline: rank %d has packet %d from rank %d over the reliable class, %d is next", h.rank,
				psn, p.From, in.next))
			return
		}
		in.next += int64(max(1, p.Count))
		c.complete(h, in, in.next)
		c.out.drop(in.next)
		return
	}
	urgent := psn >= in.receiver.expected() && psn == c.out.at(c.out.find(psn, in.message)).end()-1
	reply, ok := in.receiver.receive(psn, serial, urgent)
	if ok {
		h.reply(c, reply)
	}
	c.complete(h, in, in.receiver.expected())
}

// complete hands over the messages that end at or before a PSN.
func (c *connection) complete(h *host, in *inbox, psn int64) {
	for m := c.out.at(in.message); m != nil && m.end() <= psn; m = c.out.at(in.message) {
		in.message++
		h.arrived(*m)
	}
}

// feedback takes in what the receiver says, at the sender.
func (c *connection) feedback(f feedback) {
	before := c.sender.acknowledged()
	c.sender.feedback(f)
	if una := c.sender.acknowledged(); una > before {
		c.progress, c.backoff = c.from.run.net.Now(), 0
		c.out.drop(una)
	}
	c.from.list(c)
}

// timer looks whether the connection stands still.
func (c *connection) timer() {
	r := c.from.run
	if c.sender.acknowledged() == c.top {
		c.armed = false
		return
	}
	rto := r.RTO << min(c.backoff, 6)
	if due := c.progress + rto; due > r.net.Now() {
		r.net.At(due, int(c.from.rank), tagTimer|c.number)
		return
	}
	// What waits in its queue is no silence; the multicast's timer looks there too.
	if busy := r.net.Busy(int(c.from.rank)); busy > r.net.Now() {
		r.net.At(busy, int(c.from.rank), tagTimer|c.number)
		return
	}
	if c.backoff++; c.backoff > r.Retries {
		r.fail(fmt.Errorf("baseline: rank %d has no answer from rank %d after %d tries; %d of %d packets acknowledged",
			c.from.rank, c.to, r.Retries, c.sender.acknowledged(), c.end))
		return
	}
	r.result.Timeouts++
	c.progress = r.net.Now()
	c.sender.timeout()
	r.net.At(c.progress+r.RTO<<min(c.backoff, 6), int(c.from.rank), tagTimer|c.number)
	c.from.list(c)
}
