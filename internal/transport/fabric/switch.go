package fabric

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Switch carries the datagrams of the in-network Reduce-Scatter between one rank and the switch
// that it has joined (internal/protocol/reducescatter drives it). They may be lost, reordered and
// doubled. Stripes share nothing: each has a path of its own.
type Switch interface {
	// Add puts a datagram into the batch of the next Flush. It reports whether there was room; if
	// not, Flush makes some. It keeps payload until then, and does not keep h.
	Add(h *wire.Slot, payload []byte) bool
	// Flush sends the datagrams added since the last Flush on a stripe, and returns how many went,
	// the first ones; there was no room for the others, which are forgotten. An error says that
	// nothing goes that way any more.
	Flush(stripe int) (sent int, err error)
	// Receive gives the sink the datagrams that have arrived on a stripe and are not read yet, in
	// order, and returns how many they were: about budget at most. 0 means that there are none, or
	// that the network has reported an error about an earlier datagram; then more may be there.
	// Receive may have the first payload written to hint, if that is not nil. If the payload does
	// not belong there, the content of hint afterwards is undefined. An error says that nothing
	// comes that way any more.
	Receive(stripe int, hint []byte, budget int, s SlotSink) (int, error)
	Sleeper
	// Stats may be called from any goroutine. Dropped counts received datagrams that are not the
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
