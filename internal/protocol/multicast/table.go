package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// table holds the operations that this rank knows, of at most maxKnown numbers: operations that it keeps for its
// neighbour, its own in flight, and operations that faster ranks have begun.
type table struct {
	oldest uint32        // first operation that is kept
	first  uint32        // first operation that is not done; not before oldest
	posted uint32        // next operation to post; not before first, by collective.MaxInFlight at most
	begun  uint32        // no operation from here on is known to have been begun; not before posted
	ops    [maxKnown]*op // by number, modulo maxKnown; each is made when it is first asked for
}

// at returns an operation that is kept, or in its place one of another number.
func (t *table) at(seq uint32) *op {
	p := &t.ops[seq%maxKnown]
	if *p == nil {
		*p = new(op)
	}
	return *p
}

// find returns the operation that something which arrived belongs to, or nil if this rank keeps
// none: it is stale, or further ahead than a correct rank gets.
func (t *table) find(seq uint32) *op {
	if seq-t.oldest >= maxKnown {
		return nil
	}
	p := t.at(seq)
	if p.state == free || p.seq != seq {
		p.blank(seq)
	}
	return p
}

// post takes the next number.
func (t *table) post() {
	t.posted++
	t.begin(t.posted - 1)
}

// begin notes that an operation has been begun.
func (t *table) begin(seq uint32) { t.begun = wire.Later(t.begun, seq+1) }

// front returns the oldest operation that is posted and not done, or nil.
func (t *table) front() *op { return t.active(t.first) }

// after returns the next one after p, or nil.
func (t *table) after(p *op) *op { return t.active(p.seq + 1) }

// active returns the first operation from a number on that is posted and not done, or nil.
func (t *table) active(seq uint32) *op {
	for ; seq != t.posted; seq++ {
		if p := t.ops[seq%maxKnown]; p.state == active {
			return p
		}
	}
	return nil
}
