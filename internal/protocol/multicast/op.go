package multicast

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
	// unrelayed: chunks have come by multicast or repair before the barrier has told this rank that all relay. Comm.relay
	// forwards them.
	unrelayed bool
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
