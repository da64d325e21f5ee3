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
	words    []byte  // pinned: a word for each slot
	memory   []byte  // pinned: the slots
	retired  [][]byte
	slots    [slots]ringSlot
	// inFlight is how many operations are queued that the streams have not passed. One that was queued in part
	// counts for ever, so that nobody takes the ring again.
	inFlight atomic.Int32
}

// ringSlot is a slot.
type ringSlot struct {
	memory []byte
	// word is in pinned memory. It holds the sequence number of the last piece in this slot that has ended its
	// collective.
	word   *uint32
	filled uintptr // an event: the piece was copied out
	free   uintptr // an event: it was copied in, and the slot may be filled again
	used   bool
}

// ready has the driver make the parts that the ring lacks for pieces of so many bytes, and counts them.
// Parts made before an error stay for the next time.
func (r *ring) ready(bytes int, made *atomic.Uint64) (err error) {
	need := func(what *uintptr, ask func() (uintptr, error)) {
		if err != nil || *what != 0 {
			return
		}
		var got uintptr
		if got, err = ask(); err == nil {
			*what = got
			made.Add(1)
		}
	}
	need(&r.out, r.card.NewStream)
	need(&r.in, r.card.NewStream)
	need(&r.asked, r.card.NewEvent)
	for i := range r.slots {
		need(&r.slots[i].filled, r.card.NewEvent)
		need(&r.slots[i].free, r.card.NewEvent)
	}
	if err == nil && r.words == nil {
		if r.words, err = r.card.Pin(slots * line); err == nil {
			made.Add(1)
			for i := range r.slots {
				r.slots[i].word = (*uint32)(unsafe.Pointer(&r.words[i*line]))
				*r.slots[i].word = 0
			}
		}
	}
	if err == nil && len(r.memory) < slots*bytes {
		err = r.grow(bytes, made)
	}
	return err
}

// grow gives the ring slots of so many bytes. Pieces that are queued already stay in the old slots.
func (r *ring) grow(bytes int, made *atomic.Uint64) error {
	memory := takeMemory(r.card, slots*bytes)
	if memory == nil {
		pinned, err := r.card.Pin(slots * bytes)
		if err != nil {
			return err
		}
		made.Add(1)
		memory = pinned
	}
	if r.memory != nil {
		r.retired = append(r.retired, r.memory)
	}
	r.memory = memory
	size := len(memory) / slots
	for i := range r.slots {
		r.slots[i].memory = memory[i*size:][:size:size]
	}
	return nil
}

// begin has both streams wait for all that a stream has queued so far: its work makes the input, and may
// still read memory that the output replaces.
func (r *ring) begin(stream uintptr) error {
	if err := r.card.Record(r.asked, stream); err != nil {
		return err
	}
	if err := r.card.Wait(r.out, r.asked); err != nil {
		return err
	}
	return r.card.Wait(r.in, r.asked)
}

// queue gives a piece its slot and queues its copies. The flight is told when its input is there, and writes
// the word when the results are, or will not be: until then the in stream waits.
func (r *ring) queue(f *flight) error {
	r.sequence++
	s, p := &r.slots[r.sequence%slots], f.piece
	f.sequence, f.word, f.memory = r.sequence, s.word, s.memory[:p.Bytes:p.Bytes]
	if s.used {
		if err := r.card.Wait(r.out, s.free); err != nil {
			return err
		}
	}
	if c := p.Out; c.bytes() > 0 {
		if err := r.card.CopyOut(f.memory[c.From:][:c.bytes()], c.Device, c.Rows, c.Pitch, r.out); err != nil {
			return err
		}
	}
	if err := r.card.Record(s.filled, r.out); err != nil {
		return err
	}
	if err := r.card.Call(r.out, f.filled); err != nil {
		return err
	}
	// The word alone would do. By the event the driver knows the order as well, and never runs the wait
	// before the copy where it has fewer queues than there are streams.
	if err := r.card.Wait(r.in, s.filled); err != nil {
		return err
	}
	if err := r.card.WaitWord(r.in, s.word, f.sequence); err != nil {
		return err
	}
	for _, c := range p.In {
		if c.bytes() > 0 {
			if err := r.card.CopyIn(c.Device, f.memory[c.From:][:c.bytes()], c.Rows, c.Pitch, r.in); err != nil {
				return err
			}
		}
	}
	s.used = true
	return r.card.Record(s.free, r.in)
}
