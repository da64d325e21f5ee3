package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// mailboxBytes is the size of a mailbox: head, tail, entries.
const mailboxBytes = 2*line + entries*wire.ControlSize

// mailboxes is a rank's ends of the mailboxes: one each way for each neighbour in
// the circulant graph.
type mailboxes struct {
	out        []outBox // by rank; no head where there is no edge
	neighbours []int    // ranks with an entry in out
	in         []inBox
}

// mailbox is a queue of control messages with one writer and one reader.
// Positions count messages.
type mailbox struct {
	head, tail *atomic.Uint64
	entries    []byte
}

type outBox struct {
	mailbox
	at      uint64 // next message to write
	read    uint64 // the reader's position, as last seen
	refused bool
}

type inBox struct {
	mailbox
	from int
	at   uint64 // next message to read
}

func newMailboxes(w *Region) mailboxes {
	size, away := w.lay.Size, topology.Distances(w.lay.Size)
	m := mailboxes{out: make([]outBox, size)}
	// The boxes of a receiver lie together, in the order of the offsets to the senders.
	at := func(receiver, i int) mailbox {
		b := w.mem[w.lay.places().boxes+(receiver*len(away)+i)*mailboxBytes:][:mailboxBytes]
		return mailbox{head: word64(b, 0), tail: word64(b, line), entries: b[2*line:]}
	}
	for i, d := range away {
		from, to := (w.rank+d)%size, (w.rank+size-d)%size
		m.in = append(m.in, inBox{mailbox: at(w.rank, i), from: from})
		m.out[to] = outBox{mailbox: at(to, i)}
		m.neighbours = append(m.neighbours, to)
	}
	return m
}

func (b *mailbox) entry(at uint64) []byte {
	return b.entries[at%entries*wire.ControlSize:][:wire.ControlSize]
}

// put reports whether there was room.
func (b *outBox) put(m *wire.Control) (bool, error) {
	if b.at-b.read == entries {
		b.read = b.tail.Load()
		b.refused = b.at-b.read == entries
		if b.at-b.read > entries {
			return false, fmt.Errorf("shm: a mailbox that holds messages %d to %d was read up to %d", b.at-entries, b.at, b.read)
		}
		if b.refused {
			return false, nil
		}
	}
	m.Put(b.entry(b.at))
	b.at++
	b.head.Store(b.at)
	return true, nil
}

// get reports whether there was a message.
func (b *inBox) get(m *wire.Control) (bool, error) {
	head := b.head.Load()
	if head == b.at {
		return false, nil
	}
	if head-b.at > entries {
		return false,
			fmt.Errorf("shm: it has put %d messages into a mailbox of %d that is read up to %d", head, entries, b.at)
	}
	if err := m.Get(b.entry(b.at)); err != nil {
		return false, fmt.Errorf("shm: its message %d: %w", b.at, err)
	}
	b.at++
	b.tail.Store(b.at)
	return true, nil
}

// full tells whether a message was refused and has not been taken since.
func (m *mailboxes) full() bool {
	for _, to := range m.neighbours {
		if m.out[to].refused {
			return true
		}
	}
	return false
}

// ready tells whether a message has arrived, or room for a refused one.
func (m *mailboxes) ready() bool {
	for i := range m.in {
		if b := &m.in[i]; b.head.Load() != b.at {
			return true
		}
	}
	for _, to := range m.neighbours {
		if b := &m.out[to]; b.refused && b.tail.Load() != b.read {
			return true
		}
	}
	return false
}
