package baseline

import "math/bits"

// selectiveSender resends lost packets and nothing else. Each transmission has a serial that
// feedback echoes (SRNIC puts such metadata into its headers, SRNIC, NSDI 23, 4.4.1). A
// transmission that is not acknowledged when a later one is has been lost, whether it was the first
// one for its packet or not.
type selectiveSender struct {
	una, next int64
	window    int64
	reorder   int64          // transmissions that may overtake
	serial    int64          // of the next transmission
	settled   int64          // serials below are acknowledged or taken for lost
	packets   []inFlight     // by PSN modulo the length, at least a window
	flight    []transmission // by serial modulo the length
	lost      []int64        // PSNs to send again, from head on; some may have arrived meanwhile
	head      int
}

type inFlight struct {
	arrived bool
	resend  bool // is in lost
}

type transmission struct{ serial, psn int64 }

func newSelectiveSender(window, reorder int) *selectiveSender {
	size := 1 << bits.Len(uint(window))
	s := &selectiveSender{
		window: int64(window), reorder: int64(reorder),
		packets: make([]inFlight, size), flight: make([]transmission, 4*size),
	}
	for i := range s.flight {
		s.flight[i].serial = -1
	}
	return s
}

func (s *selectiveSender) packet(psn int64) *inFlight { return &s.packets[psn&int64(len(s.packets)-1)] }
func (s *selectiveSender) sent(serial int64) *transmission {
	return &s.flight[serial&int64(len(s.flight)-1)]
}

func (s *selectiveSender) sendable(end int64) bool {
	for ; s.head < len(s.lost); s.head++ {
		if psn := s.lost[s.head]; psn >= s.una && !s.packet(psn).arrived {
			return true
		}
	}
	s.lost, s.head = s.lost[:0], 0
	return s.next < min(end, s.una+s.window)
}

func (s *selectiveSender) take(end int64) (psn, serial int64) {
	s.sendable(end) // passes over what has arrived
	if s.head < len(s.lost) {
		psn = s.lost[s.head]
		s.head++
	} else {
		psn = s.next
		s.next++
	}
	serial = s.serial
	s.serial++
	*s.packet(psn) = inFlight{}
	*s.sent(serial) = transmission{serial, psn}
	return psn, serial
}

func (s *selectiveSender) feedback(f feedback) {
	s.una = max(s.una, f.expected)
	if t := s.sent(f.serial); t.serial == f.serial && t.psn >= s.una {
		s.packet(t.psn).arrived = true
	}
	for ; s.settled < f.serial-s.reorder; s.settled++ {
		s.settle(s.settled)
	}
}

// settle takes a transmission for lost unless its packet has arrived. Each is
// settled once, so that an earlier one of the same packet is not looked at again.
func (s *selectiveSender) settle(serial int64) {
	t := s.sent(serial)
	if t.serial != serial || t.psn < s.una {
		return
	}
	if p := s.packet(t.psn); !p.arrived && !p.resend {
		p.resend = true
		s.lost = append(s.lost, t.psn)
	}
}

// timeout takes everything for lost that is not acknowledged.
func (s *selectiveSender) timeout() {
	s.settled = s.serial
	for psn := s.una; psn < s.next; psn++ {
		if p := s.packet(psn); !p.arrived && !p.resend {
			p.resend = true
			s.lost = append(s.lost, psn)
		}
	}
}

func (s *selectiveSender) acknowledged() int64 { return s.una }

// selectiveReceiver keeps packets that come early in place, as far as a window
// reaches, and says of each packet out of order that it has come.
type selectiveReceiver struct {
	next     int64
	early    []bool // by PSN modulo the length
	unacked  int
	ackEvery int
	waiting  int // packets held early
}

func newSelectiveReceiver(window, ackEvery int) *selectiveReceiver {
	return &selectiveReceiver{early: make([]bool, window), ackEvery: ackEvery}
}

func (r *selectiveReceiver) receive(psn, serial int64, urgent bool) (reply feedback, ok bool) {
	size := int64(len(r.early))
	inOrder := psn == r.next && r.waiting == 0
	if psn >= r.next && !r.early[psn%size] { // the sender's window is no larger
		r.early[psn%size] = true
		r.waiting++
		for r.early[r.next%size] {
			r.early[r.next%size] = false
			r.waiting--
			r.next++
		}
	}
	r.unacked++
	if inOrder && r.unacked < r.ackEvery && !urgent {
		return feedback{}, false
	}
	r.unacked = 0
	return feedback{expected: r.next, serial: serial}, true
}

func (r *selectiveReceiver) expected() int64 { return r.next }
