package exchange

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Lent is from how many bytes on a message is offered to be read from the sender's memory.
const Lent = 64 << 10

// ToRead returns where bytes are to be read next from the memory of a rank, and to where: at most Piece bytes; or none.
func (c *Comm) ToRead(from int) (address uintptr, to []byte) {
	p := &c.peers[from]
	if c.err != nil || len(p.reading) == 0 {
		return 0, nil
	}
	t := p.reading[0]
	rest := t.Memory[t.moved:t.Bytes]
	return uintptr(t.address) + uintptr(t.moved), rest[:min(len(rest), Piece)]
}

// Read says that what ToRead has just returned for a rank was read, all of it. If not well, the rank is asked to send
// that message and all later ones.
func (c *Comm) Read(from int, well bool) {
	p := &c.peers[from]
	if !well {
		p.reads = false
		for _, t := range p.reading {
			t.moved = 0
			c.ask(from, t)
		}
		p.reading = nil
		return
	}
	t := p.reading[0]
	if t.moved += min(t.Bytes-t.moved, Piece); t.moved < t.Bytes {
		return
	}
	p.reading = p.reading[1:]
	c.taken(from, t.number, t, t.Bytes)
}

// ask has a rank send a message.
func (c *Comm) ask(from int, t *Transfer) {
	c.peers[from].expected[t.number] = t
	c.tell(from, &wire.Message{Kind: wire.MessageGrant, Number: t.number})
}
