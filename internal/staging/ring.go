package staging

import (
	"sync/atomic"
	"unsafe"
)

// slots is how many pieces of a ring may be between their copy out and their copy in.
const slots = 4

// ring is staging memory of one kind of operations on one device, and the streams that copy: out from
// tensors to slots, in from slots to tensors. PCIe moves both at once.
type ring struct {
	card     Card
	out, in  uintptr
	asked    uintptr // an event: what the caller's stream had queued before a call
	sequence uint32  // of the newest piece
	slots    [slots]place
}

// place is a slot.
type place struct {
	memory []byte
	// word is in pinned memory. It holds the sequence number of the last piece of this slot whose
	// collective has ended.
	word   *uint32
	filled uintptr // an event: the piece was copied out
	free   uintptr // an event: it was copied in, and the slot may be filled again
	used   bool
}

// newRing makes one of slots of so many bytes. made counts what it has the driver make.
func newRing(card Card, bytes int, made *atomic.Uint64) (*ring, error) {
	r := &ring{card: card}
	stride := (bytes + line - 1) / line * line
	pinned, err := card.Pin(slots*stride + slots*line)
	if err != nil {
		return nil, err
	}
	made.Add(1)
	streams, events := []*uintptr{&r.out, &r.in}, []*uintptr{&r.asked}
	for i := range r.slots {
		s := &r.slots[i]
		s.memory = pinned[i*stride:][:bytes:bytes]
		s.word = (*uint32)(unsafe.Pointer(&pinned[slots*stride+i*line]))
		*s.word = 0
		events = append(events, &s.filled, &s.free)
	}
	for _, s := range streams {
		if *s, err = card.NewStream(); err != nil {
			return nil, err
		}
		made.Add(1)
	}
	for _, e := range events {
		if *e, err = card.NewEvent(); err != nil {
			return nil, err
		}
		made.Add(1)
	}
	return r, nil
}

// begin has both streams wait for what a stream has queued so far: it makes the input, and may still read
// what the output replaces.
func (r *ring) begin(stream uintptr) error {
	if err := r.card.Record(r.asked, stream); err != nil {
		return err
	}
	if err := r.card.Wait(r.out, r.asked); err != nil {
		return err
	}
	return r.card.Wait(r.in, r.asked)
}

// queue queues the copies of a piece. filled is called when its input is in the memory, and whoever gets
// that calls ended once, when the results are there or will not be: until then the in stream waits.
func (r *ring) queue(p *Piece, filled func(memory []byte, ended func())) error {
	r.sequence++
	sequence, s := r.sequence, &r.slots[r.sequence%slots]
	memory := s.memory[:p.Bytes:p.Bytes]
	if s.used {
		if err := r.card.Wait(r.out, s.free); err != nil {
			return err
		}
	}
	for _, c := range p.Out {
		if c.To > c.From {
			if err := r.card.CopyOut(memory[c.From:c.To], c.Device, r.out); err != nil {
				return err
			}
		}
	}
	if err := r.card.Record(s.filled, r.out); err != nil {
		return err
	}
	ended := func() { atomic.StoreUint32(s.word, sequence) }
	if err := r.card.Call(r.out, func() { filled(memory, ended) }); err != nil {
		return err
	}
	// The word alone would do. By the event the driver knows the order as well, and never runs the wait
	// before the copy where it has fewer queues than there are streams.
	if err := r.card.Wait(r.in, s.filled); err != nil {
		return err
	}
	if err := r.card.WaitWord(r.in, s.word, sequence); err != nil {
		return err
	}
	for _, c := range p.In {
		if c.To > c.From {
			if err := r.card.CopyIn(c.Device, memory[c.From:c.To], r.in); err != nil {
				return err
			}
		}
	}
	s.used = true
	return r.card.Record(s.free, r.in)
}
