// Package node drives an innetwork.Stage: it is what an aggregation node does for one stripe of a
// job, round by round, over links to the members and to the parent. Like the stage it has no clock,
// socket, goroutine or lock; internal/switchd gives it sockets, the simulators simulated ones.
package node

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const (
	// Quantum is how many bytes a node may receive and send in a round before it is the next one's
	// turn.
	Quantum = 256 << 10
	// leastCharge is the least that a datagram, and a call to receive some, takes of the
	// credit, in bytes: short ones cost about as much as those of 1.5 KiB.
	leastCharge = 2 << 10
)

// Link is one end of a path to a member or to the parent. None of its methods blocks.
type Link interface {
	// Receive gives Node.Take some of what has come, Node.Charge being called for each datagram, and
	// reports whether the next call may bring something. It may have the kernel write a payload to
	// hint, if that is not nil.
	Receive(hint []byte) bool
	// Writable reports whether Flush is likely to find room.
	Writable() bool
	// Add puts a datagram into the batch of the next Flush. It reports whether there was room. It keeps payload until
	// then, and does not keep h.
	Add(h *wire.Slot, payload []byte) bool
	// Flush sends what was added and returns how many datagrams went, the first ones; there was no
	// room for the others, which are forgotten, and it is not Writable until there is.
	Flush() (sent int)
}

// Node is what an aggregation node does for a stripe of a job.
type Node struct {
	stage    *innetwork.Stage
	links    []Link // by member
	up       Link   // to the parent, or nil
	straight bool
	timeout  innetwork.Time // the parent counts as lost after such a silence; 0: never
	now      innetwork.Time

	credit int             // bytes that it may still move in this round
	first  int             // the link that is next
	unsent []innetwork.Out // of one link
	adding []innetwork.Out // in the batch of the link that is sent to
	to     Link

	// Arguments of interface calls, kept here so that they do not escape to the heap for each
	// datagram.
	head wire.Slot
	body [wire.SlotBodySize + wire.MaxSlotSet]byte
}

// New returns a node without links, or an error if the configuration is wrong.
func New(c innetwork.StageConfig) (*Node, error) {
	stage, err := innetwork.NewStage(c)
	if err != nil {
		return nil, err
	}
	return &Node{stage: stage, timeout: c.Timeout}, nil
}

// Connect gives the node its links, by member number, and the one to the parent, or nil. straight
// says that payloads are worth receiving where they belong.
func (n *Node) Connect(members []Link, parent Link, straight bool) {
	n.links, n.up, n.straight = members, parent, straight
}

// Work does one round at a moment: it receives, as far as its credit goes, and sends. It reports
// whether there was something to do.
func (n *Node) Work(now innetwork.Time) (busy bool) {
	n.Begin(now)
	busy = n.credit <= 0 // in debt for an earlier round, and the links may have more
	busy = n.receive() || busy
	return n.answer() || busy
}

// Begin begins a round at a moment. Work calls it; a driver that calls Take when something comes must call it before.
func (n *Node) Begin(now innetwork.Time) {
	n.now = now
	n.credit = min(n.credit+Quantum, Quantum)
}

// Answer ends a round that Begin has begun: it sends all that is due, and reports whether there may be more.
func (n *Node) Answer() (more bool) {
	n.answer()
	return n.credit <= -Quantum
}

func (n *Node) answer() (busy bool) {
	n.stage.Expire(n.now)
	n.allow()
	n.acknowledge()
	return n.send()
}

// SilenceError says that the parent has not answered for too long.
type SilenceError struct{ For innetwork.Time }

// Error says for how long.
func (e *SilenceError) Error() string {
	return fmt.Sprintf("its data path has not answered for %v", e.For.Round(time.Millisecond))
}

// Err returns why the job cannot go on, or nil.
func (n *Node) Err() error {
	if err := n.stage.Err(); err != nil {
		return err
	}
	if silence := n.stage.Silence(n.now, n.timeout); n.timeout > 0 && silence > n.timeout {
		return &SilenceError{silence}
	}
	return nil
}

// Deadline returns when Work is to be called, unless something comes before.
func (n *Node) Deadline() (innetwork.Time, bool) { return n.stage.Deadline() }

// Stats returns the stage's counters.
func (n *Node) Stats() innetwork.StageStats { return n.stage.Stats() }

// InUse returns how many slots hold something.
func (n *Node) InUse() int { return n.stage.InUse() }

// receive takes what the links have, in turns, as far as credit goes.
func (n *Node) receive() (busy bool) {
	for again := true; again && n.credit > 0; {
		again = false
		for range n.links {
			again = n.receiveFrom(n.first) || again
			n.first = (n.first + 1) % len(n.links)
		}
		if n.up != nil {
			again = n.receiveFrom(innetwork.Up) || again
		}
		busy = busy || again
	}
	return busy
}

// receiveFrom has a link receive once, and reports whether the next time may bring something.
func (n *Node) receiveFrom(member int) bool {
	if n.credit <= 0 {
		return false
	}
	var hint []byte
	if n.straight && member != innetwork.Up {
		hint = n.stage.Expect(member)
	}
	return n.link(member).Receive(hint)
}

func (n *Node) link(member int) Link {
	if member == innetwork.Up {
		return n.up
	}
	return n.links[member]
}

// Charge takes a datagram of so many bytes, or with 0 a call to the kernel, off the round's credit.
func (n *Node) Charge(bytes int) { n.credit -= max(leastCharge, bytes) }

// Take takes a datagram that has come from a member, or from the parent. It reports whether it is
// one that they send.
func (n *Node) Take(member int, h *wire.Slot, payload []byte) bool {
	if member == innetwork.Up {
		return n.fromParent(h, payload)
	}
	switch h.Kind {
	case wire.Contribution:
		n.stage.Contribute(member, h, payload)
	case wire.Status:
		var st wire.SlotStatus
		if st.Get(payload) != nil {
			return false
		}
		n.stage.Status(n.now, member, h, &st)
	case wire.Kept:
		var k wire.SlotKept
		if k.Get(payload) != nil {
			return false
		}
		n.stage.Kept(member, h, &k)
	case wire.Echo:
		if n.stage.Echo(member, h, len(payload)) {
			n.message(member, h, nil)
			if len(payload) > 0 { // else it has been answered
				n.message(member, h, payload)
			}
		}
	default:
		return false
	}
	return true
}

func (n *Node) fromParent(h *wire.Slot, payload []byte) bool {
	switch h.Kind {
	case wire.Result:
		n.stage.Result(n.now, h, payload)
		return true
	case wire.Allowance:
		var c wire.SlotCredit
		if c.Get(payload) == nil {
			n.stage.Credit(n.now, h, &c)
			return true
		}
	}
	return false
}
