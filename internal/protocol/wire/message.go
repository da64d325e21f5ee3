package wire

import "encoding/binary"

// MessageSize is the length of a Message in bytes.
const MessageSize = 32

// MessageKind says what a Message tells.
type MessageKind uint8

// The kinds of a Message. Numbers count what a sender offers to one receiver.
const (
	// MessageOffer offers bytes to the receiver. If Follows is set they come right behind.
	MessageOffer MessageKind = iota + 1
	// MessageGrant asks the sender for what was offered: there is memory for it.
	MessageGrant
	// MessageData precedes a piece of what was granted.
	MessageData
	// MessageTaken says that bytes which came behind their offer, or were read, have reached their memory.
	MessageTaken
	// MessageBye is the last one: the rank leaves.
	MessageBye
	// MessageAwait says that the rank awaits a part of a gather or a scatter from the receiver. Nobody waits for it: it
	// shows where ranks have called different things.
	MessageAwait
	messageEnd
)

// Exchange is what a message is a part of.
type Exchange uint8

// What messages are parts of.
const (
	// SendReceive is one send and one receive, with a tag that the caller gives.
	SendReceive Exchange = iota
	// AllToAll, Gather and Scatter are collectives: the tag counts them.
	AllToAll
	Gather
	Scatter
	exchangeEnd
)

// String names it.
func (e Exchange) String() string {
	if e >= exchangeEnd {
		return "unknown"
	}
	return [...]string{"send", "all-to-all", "gather", "scatter"}[e]
}

// Message is the head of all that goes over the stream between two ranks that exchange messages.
//
//	 0  version  u8
//	 1  kind     u8
//	 2  part of  u8   Exchange
//	 3  follows  u8   1: the bytes come right behind this offer
//	 4  number   u32  of the offer
//	 8  tag      u64
//	16  bytes    u64  that are offered, follow, or are awaited
//	24  address  u64  of what is offered, in the sender's process, where the receiver may read it; 0: it may not
type Message struct {
	Kind    MessageKind
	Of      Exchange
	Follows bool
	Number  uint32
	Tag     uint64
	Bytes   uint64
	Address uint64
}

// Append writes the head behind b.
func (m *Message) Append(b []byte) []byte {
	follows := byte(0)
	if m.Follows {
		follows = 1
	}
	b = append(b, Version, byte(m.Kind), byte(m.Of), follows)
	b = binary.BigEndian.AppendUint32(b, m.Number)
	b = binary.BigEndian.AppendUint64(b, m.Tag)
	b = binary.BigEndian.AppendUint64(b, m.Bytes)
	return binary.BigEndian.AppendUint64(b, m.Address)
}

// Get reads the head from b. It returns ErrShort, ErrVersion or ErrField.
func (m *Message) Get(b []byte) error {
	if len(b) < MessageSize {
		return ErrShort
	}
	if b[0] != Version {
		return ErrVersion
	}
	m.Kind, m.Of, m.Follows = MessageKind(b[1]), Exchange(b[2]), b[3] == 1
	if m.Kind < MessageOffer || m.Kind >= messageEnd || m.Of >= exchangeEnd || b[3] > 1 {
		return ErrField
	}
	m.Number = binary.BigEndian.Uint32(b[4:])
	m.Tag, m.Bytes = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	m.Address = binary.BigEndian.Uint64(b[24:])
	return nil
}
