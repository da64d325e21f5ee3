package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Expected is a guess at the chunks that arrive next.
type Expected struct {
	Seq    uint32
	Root   int
	PSN    int
	Count  int
	Offset int // of chunk PSN in the receive buffer
	Bytes  int // of all of them
}

// Expect guesses what arrives next, so that a fabric can receive in place. It returns false when it
// has no idea. Only buffers of posted operations are named, and only chunks that have not arrived.
// next, unless it is nil, is the header of the first chunk to come: those behind it follow it.
func (c *Comm) Expect(next *wire.Data) (Expected, bool) {
	if c.err != nil {
		return Expected{}, false
	}
	if next != nil {
		return c.expectFrom(next)
	}
	if p := c.ops.ops[c.latest%maxKnown]; p != nil && p.seq == c.latest && p.state == active && p.mode.kind == serial {
		if e, ok := p.next(); ok {
			return e, true
		}
	}
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		if !p.mode.kind.inPlace() || !p.barrier.open || p.mode.kind == serial && !p.link.sending {
			continue
		}
		if e, ok := p.next(); ok {
			return e, true
		}
	}
	return Expected{}, false
}

// next guesses which chunks of an operation arrive next.
func (p *op) next() (Expected, bool) {
	s, psn, ok := p.receiver.next(&p.layout)
	if !ok {
		return Expected{}, false
	}
	return p.expected(s, psn, p.chunks), true
}

// expectFrom guesses that a chunk is followed by those behind it in its shard.
func (c *Comm) expectFrom(h *wire.Data) (Expected, bool) {
	p := c.ops.ops[h.Seq%maxKnown]
	if p == nil || p.seq != h.Seq || p.state != active || !p.mode.kind.inPlace() || int(h.Root) >= c.cfg.Size {
		return Expected{}, false
	}
	s, psn := p.shard(int(h.Root)), int(h.PSN)
	if s < 0 || psn >= p.chunks {
		return Expected{}, false
	}
	to := p.receiver.lackedTo(&p.layout, s, psn)
	return p.expected(s, psn, to), to > psn
}

// expected are chunks [from, to) of a shard.
func (p *op) expected(shard, from, to int) Expected {
	return Expected{
		Seq: p.seq, Root: p.rootOf(shard), PSN: from, Count: to - from,
		Offset: p.offset(shard, from), Bytes: p.span(from, to),
	}
}
