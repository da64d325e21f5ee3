package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// opState says what this rank knows of an operation.
type opState uint8

const (
	free     opState = iota
	early            // other ranks have begun it, this one has not posted it
	active           // posted, not done
	retained         // done; kept because the right neighbour may still need it
)

// op is the state of one operation: components that do not know of each other. What concerns several of
// them, Comm does.
type op struct {
	// What every chunk reads stands together, and begins the components.
	state opState
	// otherwise: a chunk has come by multicast or repair while this rank did not know that all relay.
	otherwise bool
	viaRelay  bool // a chunk has come by relay
	moved     Time // when something last happened to it, see Waiting
	waits     Time // when the last of its waits ended, see Awaited
	layout
	barrier barrier
	timer   timer
	sender  sender
	link    link // to its series, if it is serial
	memory
	calls     calls
	handshake handshake
}

// blank makes p operation seq, about which nothing else is known.
func (p *op) blank(seq uint32) {
	*p = op{state: early, layout: layout{seq: seq}, calls: calls{early: p.calls.early[:0], credits: p.calls.credits[:0]}}
}

// known reports whether the operation has a geometry: it was posted, or one of its chunks came early.
func (p *op) known() bool { return p.chunks > 0 }

// received reports whether every chunk is here.
func (p *op) received() bool { return p.receiver.full() }

// lay gives an operation its shape and mode, and memory that its components need.
func (c *Comm) lay(p *op, s *shape, m *mode) {
	p.mode, p.shape, p.topo, p.own = *m, *s, c.topo, s.shard(c.topo.Rank)
	c.pool.take(p.all(), &p.memory)
	p.prepare(&p.layout)
}

// forget drops all knowledge about an operation's chunks.
func (c *Comm) forget(p *op) {
	if p.known() {
		c.backlog.remove(p.repairs.drop())
		c.offers -= p.pulls.drop(&p.layout)
		c.pool.put(p.all(), &p.memory)
	}
}

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
