package verbs

import "fmt"

// A stream is written by its sender to a ring at its receiver, and each message, which is one write, tells that
// receiver by its immediate how far the other direction has come (an ack): how many bytes were consumed, and how many
// messages received. A message without bytes has an ack alone. All counts here are of one direction; nothing here
// knows of devices.
const (
	messageSize = 32 << 10 // bytes of a message at most: the receiver sums the first ones while the others come
	messages    = 32       // with bytes, that the receiver has not acknowledged yet
	// messages without bytes that may be on their way: acks come after a quarter of messages or of the ring
	ackMessages = 8
	nudges      = 5 // see nudge.go
	maxInFlight = messages + ackMessages + nudges
	// Buffers are given back ackMessages at a time, so these are always there for what may come.
	buffers = messages + 2*ackMessages
	// unit is what acks count consumed bytes in: 16 bits of them are more than a ring.
	unit = 64
)

// outbound is the direction from a rank to another. Its own ring mirrors the receiver's: byte i of the stream is at i
// modulo their size in both.
type outbound struct {
	ring      uint64 // bytes
	sent      uint64 // bytes given to the device
	delivered uint64 // of those, the receiver's device has: the own ring is free of them
	taken     uint64 // of those, the receiver has consumed as far as it has acknowledged: its ring is free of them
	messages  uint64 // with bytes, given to the device
	received  uint64 // of those, the receiver has acknowledged: it has buffers for others
	posted    uint64 // transfers given to the device
	done      uint64 // of those, complete
	ends      [maxInFlight]uint64
}

// next returns where in both rings the next message of up to n bytes goes, and how many it takes now; 0: there is no
// room.
func (o *outbound) next(n int) (at, size int) {
	if o.messages-o.received >= messages || o.posted-o.done >= maxInFlight-ackMessages-nudges {
		return 0, 0
	}
	start := o.sent % o.ring
	free := o.ring - (o.sent - min(o.delivered, o.taken))
	return int(start), int(min(uint64(n), messageSize, free, o.ring-start))
}

// post counts a message of n bytes as given to the device.
func (o *outbound) post(n int) {
	if n > 0 {
		o.sent += uint64(n)
		o.messages++
	}
	o.ends[o.posted%maxInFlight] = o.sent
	o.posted++
}

// spare reports whether there is room for a message without bytes.
func (o *outbound) spare() bool { return o.posted-o.done < maxInFlight }

// complete counts the oldest transfer under way as complete.
func (o *outbound) complete() {
	o.delivered = o.ends[o.done%maxInFlight]
	o.done++
}

// ack takes an ack of the receiver.
func (o *outbound) ack(ack uint32) error {
	taken := o.taken + unit*uint64(uint16(ack)-uint16(o.taken/unit))
	received := o.received + uint64(uint16(ack>>16)-uint16(o.received))
	if taken > o.sent || received > o.messages {
		return fmt.Errorf("says that it has consumed %d bytes and received %d messages, of %d and %d sent", taken, received,
			o.sent, o.messages)
	}
	o.taken, o.received = taken, received
	return nil
}

// inbound is what a rank receives from another.
type inbound struct {
	ring     uint64 // bytes
	arrived  uint64 // bytes
	consumed uint64
	messages uint64 // with bytes
	owed     int    // buffers that are to be given to the device again
	acked    struct{ consumed, messages uint64 }
}

// arrive counts a message of n bytes as received.
func (i *inbound) arrive(n uint32) error {
	i.owed++
	if n == 0 {
		return nil
	}
	i.arrived += uint64(n)
	i.messages++
	if i.arrived-i.consumed > i.ring {
		return fmt.Errorf("has written %d bytes more than its ring has", i.arrived-i.consumed-i.ring)
	}
	return nil
}

// piece returns where in the ring the bytes that have arrived and are not consumed begin, and how many lie in one
// piece.
func (i *inbound) piece() (at, n int) {
	start := i.consumed % i.ring
	return int(start), int(min(i.arrived-i.consumed, i.ring-start))
}

// ackDue reports whether the sender should be notified, even if this rank has nothing to send.
func (i *inbound) ackDue() bool {
	return i.consumed-i.acked.consumed >= i.ring/4 || i.messages-i.acked.messages >= messages/4
}

// takeAck returns the ack for the sender, which then need not be sent again.
func (i *inbound) takeAck() (ack uint32) {
	i.acked.consumed, i.acked.messages = i.consumed, i.messages
	return uint32(uint16(i.consumed/unit)) | uint32(uint16(i.messages))<<16
}
