package exchange

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// AnySource as the Peer of a receive takes a message from any rank.
const AnySource = -1

// Transfer is one message, as its sender or its receiver sees it. It is made for each; the caller reads it once it is
// done.
type Transfer struct {
	Of     wire.Exchange // what it is a part of
	Sends  bool
	Peer   int    // the other rank; of a receive that is done: the sender
	Tag    uint64 // of a collective: which one, see Comm.Collective
	Memory []byte // that is sent, or takes what is received
	Bytes  int    // of the message, once a receive is done: at most len(Memory)
	Owner  any    // the caller's
	Done   bool

	any     bool   // a receive from any rank
	granted bool   // it has matched
	seq     uint64 // receives are matched in the order of posting
	number  uint32 // of the offer
	moved   int    // bytes
	came    bool   // its bytes came behind the offer
	address uint64 // where they are read from, by the receiver
}

// matches reports whether a receive waits for an offer of a rank.
func (t *Transfer) matches(from int, o *wire.Message) bool {
	return (t.any || t.Peer == from) && t.Tag == o.Tag && (t.Of == 0) == (o.Of == 0)
}

// Text says what a rank called.
func (t *Transfer) Text() collective.Text {
	if t.any && !t.Done {
		return collective.Textf("a receive of %d bytes from any rank, tag %d", len(t.Memory), t.Tag)
	}
	words := text(t.Of, t.Sends, t.Peer, len(t.Memory))
	if t.Of == wire.SendReceive {
		return collective.Textf("%v, tag %d", words, t.Tag)
	}
	return words
}

// Awaits returns the rank that it waits for, or AnySource, and why.
func (t *Transfer) Awaits() (rank int, why string) {
	switch {
	case t.granted:
		return t.Peer, "bytes are on their way"
	case t.Sends:
		return t.Peer, "it has posted no receive that matches"
	case t.any:
		return AnySource, "no rank has sent what matches"
	}
	return t.Peer, "it has sent nothing that matches"
}

// text says what a rank called.
func text(of wire.Exchange, sends bool, peer, bytes int) collective.Text {
	verb, to := "a receive", "from"
	if sends {
		verb, to = "a send", "to"
	}
	if of != wire.SendReceive {
		verb = of.String()
	}
	return collective.Textf("%s of %d bytes %s rank %d", verb, bytes, to, collective.Place(peer))
}

// LeftError says that a rank has left the group, so that a message will never come or be taken.
type LeftError struct {
	Rank int
	What string // is in flight on this rank
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("rank %d left while %s was in flight", e.Rank, e.What)
}
