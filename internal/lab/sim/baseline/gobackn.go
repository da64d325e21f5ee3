package baseline

// sender decides which packet of a connection goes next. PSNs count from 0 and
// do not wrap. A serial numbers transmissions, where feedback tells them apart.
type sender interface {
	// sendable reports whether a packet before end may go now.
	sendable(end int64) bool
	// take returns the packet to send; sendable has said that there is one.
	take(end int64) (psn, serial int64)
	// feedback takes in what a receiver says.
	feedback(f feedback)
	// timeout is called when nothing was acknowledged for long.
	timeout()
	// acknowledged returns the PSN below which everything has arrived.
	acknowledged() int64
}

// receiver takes in packets and says what feedback they call for.
type receiver interface {
	// receive takes a packet in; urgent asks for an ACK now if all is in order.
	receive(psn, serial int64, urgent bool) (reply feedback, ok bool)
	// expected returns the PSN below which everything has arrived.
	expected() int64
}

// feedback is an ACK or a NACK: everything below expected has arrived.
type feedback struct {
	nack     bool
	expected int64
	serial   int64 // selective repeat: the transmission that caused it
}

// goBackSender is the sending end of RC: after a NACK or a timeout it sends
// everything again from the first packet that is not acknowledged.
type goBackSender struct {
	una, next int64
	window    int64
}

func (s *goBackSender) sendable(end int64) bool { return s.next < min(end, s.una+s.window) }

func (s *goBackSender) take(int64) (psn, serial int64) {
	s.next++
	return s.next - 1, 0
}

func (s *goBackSender) feedback(f feedback) {
	if f.expected < s.una {
		return // of a round that is over
	}
	s.una = f.expected
	if s.next < s.una || f.nack {
		s.next = s.una
	}
}

func (s *goBackSender) timeout()            { s.next = s.una }
func (s *goBackSender) acknowledged() int64 { return s.una }

// goBackReceiver is the receiving end: packets out of order are thrown away,
// with one NACK a gap (an RC responder sends no second one before the
// expected packet has come), and old ones are acknowledged again.
type goBackReceiver struct {
	next     int64
	nacked   bool
	unacked  int
	ackEvery int
}

func (r *goBackReceiver) receive(psn, _ int64, urgent bool) (reply feedback, ok bool) {
	switch {
	case psn > r.next:
		ok = !r.nacked
		r.nacked = true
		return feedback{nack: true, expected: r.next}, ok
	case psn < r.next:
		return feedback{expected: r.next}, true
	}
	r.next++
	r.nacked = false
	r.unacked++
	if r.unacked < r.ackEvery && !urgent {
		return feedback{}, false
	}
	r.unacked = 0
	return feedback{expected: r.next}, true
}

func (r *goBackReceiver) expected() int64 { return r.next }
