package baseline

// message is consecutive pieces of one collective, sent together: first,
// first+1, ... modulo the number of pieces.
type message struct {
	stream, first, count int32
	terms                int32 // ranks that have added their part to it; 0 where nothing is summed
	packets              int32
	bytes                int64
	psn                  int64 // of its first packet
}

func (m *message) end() int64 { return m.psn + int64(m.packets) }

// outbox holds the messages of a connection, numbered from 0, until both ends
// are done with them. It stands for what packets' headers say of their message.
type outbox struct {
	messages []message
	head     int   // messages[:head] are done with
	base     int64 // number of messages[0]
}

func (o *outbox) add(m message) { o.messages = append(o.messages, m) }

// at returns a message by its number; nil if it is not there yet.
func (o *outbox) at(number int64) *message {
	if i := int(number - o.base); i < len(o.messages) {
		return &o.messages[i]
	}
	return nil
}

// find returns the number of the message with a PSN, looking from a number on, in either direction.
func (o *outbox) find(psn, from int64) int64 {
	n := max(from, o.base+int64(o.head))
	for psn < o.messages[n-o.base].psn {
		n--
	}
	for psn >= o.messages[n-o.base].end() {
		n++
	}
	return n
}

// drop forgets the messages that end at or before a PSN.
func (o *outbox) drop(psn int64) {
	for o.head < len(o.messages) && o.messages[o.head].end() <= psn {
		o.head++
	}
	if o.head > 16 && o.head*2 > len(o.messages) {
		o.messages = o.messages[:copy(o.messages, o.messages[o.head:])]
		o.base += int64(o.head)
		o.head = 0
	}
}
