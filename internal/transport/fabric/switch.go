package fabric

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Switch carries the datagrams of the in-network Reduce-Scatter between one rank and the switch
// that it has joined (internal/protocol/reducescatter drives it). They may be lost, reordered and
// doubled. Stripes share nothing: each has a path of its own.
type Switch interface {
	// Add puts a datagram with those that the next Flush sends. It reports whether there was room;
	// if not, Flush makes some. It keeps payload until then, and does not keep h.
	Add(h *wire.Slot, payload []byte) bool
	// Flush sends what was added since the last one on a stripe, and returns how many datagrams
	// went, the first ones; there was no room for the others, which are forgotten. An error says
	// that nothing goes that way any more.
	Flush(stripe int) (sent int, err error)
	// Receive gives the sink what has arrived on a stripe and is not read yet, in order, and
	// returns how many datagrams that were: about budget at most, and 0 if there are none, or if in
	// their place came what the network said about one that was sent; then more may be there.
	// What Receive may have the payload of the first one written to is hint; nil: nothing. If it
	// does not belong there, what lies in the hint afterwards is undefined. An error says that
	// nothing comes that way any more.
	Receive(stripe int, hint []byte, budget int, s SlotSink) (int, error)
	Sleeper
	// Stats may be called from any goroutine. Dropped counts what was received and is not the
	// switch's: malformed, of another stripe, or with a wrong tag.
	Stats() Stats
	Close() error
}

// SlotSink receives what a Switch's Receive finds.
type SlotSink interface {
	// Slot takes a datagram of the switch. Both are valid until it returns; payload lies in the
	// hint if it was received there: compare addresses.
	Slot(h *wire.Slot, payload []byte)
}
