package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// series is the Broadcasts of one root, one behind the other, as far as credit says which ranks are ready (kind
// serial). Their chunks count through. Another rank gives the root one limit: a window ahead of the chunks that the
// other rank has taken of the series, but not beyond the operations that the other rank has posted. So a root has one
// window under way, however many Broadcasts that covers, and sends them in the order in which they were posted
// (docs/decisions/0035).
type series struct {
	length int // chunks of all operations posted
	taken  int // chunks that this rank has taken off its queue, or sent; never falls
	// known is the end of the last operation that its root is known to send; of this rank's own, up
	// to where all others have taken it.
	known int
	// first is the oldest operation that this rank is not through with, and last the newest: it is
	// through when the last chunk, or a later one of the series, has come. Not of this rank's own.
	first, last uint32
	open        bool // there is one
}

// link is where an operation lies in its series.
type link struct {
	of       *series // of another root; nil: there is none, or this rank is the root
	base     int     // chunks of the series before it
	next     uint32  // the operation that follows
	follows  bool    // there is one
	admitted bool    // this rank's queue has room for it; only after all before it in posting order
	// sending: its root is known to send it, so that a silence may be a loss. A rank learns that
	// from its parent in the root's tree, if no chunk comes sooner.
	sending   bool
	announced bool // the ranks below know that, too
	lap       uint32
}

// lap is a run of posted Broadcasts. A new lap begins where roots begin again from a lower one, as they do with each
// Allgather that NCCL hands over in windows. Laps are numbered; no more than MaxInFlight are in flight.
type lap struct {
	start [mostShares]int // chunks of each root's series before it, if they are no more
	// together: Broadcasts of all roots were in flight here before this rank was through with one. Only then do links
	// carry more if roots send at the same time, and they do, each with a share of the window. Else roots take turns in
	// the order in which Broadcasts were posted, each with all of the window: overlapping Broadcasts would fill the
	// receivers' links no better, and load the sending links of several roots, which a Reduce-Scatter could use
	// (docs/decisions/0037).
	together bool
}

// laps are the last ones that have begun.
type laps struct {
	last uint32
	at   [collective.MaxInFlight]lap // by number
}

func (l *laps) of(number uint32) *lap { return &l.at[number%collective.MaxInFlight] }

// limit returns up to which chunk of an operation this rank lets its root send, of most.
func (a *link) limit(window, most int) int {
	switch {
	case !a.admitted:
		return 0
	case a.of == nil:
		return most
	}
	return min(max(0, a.of.taken-a.base+window), most)
}

// through reports whether this rank is through with an operation of a number.
func (a *link) through(seq uint32) bool {
	return a.of == nil || !a.of.open || wire.Before(seq, a.of.first)
}
