package node

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// allow sends the allowances that are due.
func (n *Node) allow() {
	for {
		member, h, c, ok := n.stage.NextCredit()
		if !ok {
			return
		}
		n.message(member, &h, n.body[:c.Put(n.body[:])])
	}
}

// acknowledge tells the parent which results are held here. It says what was sent as well, so a contribution that found
// no room goes first: otherwise the parent takes it for lost.
func (n *Node) acknowledge() {
	if n.up == nil {
		return
	}
	if len(n.unsent) > 0 && n.unsent[0].Member == innetwork.Up {
		n.stage.Blocked(n.now)
		return
	}
	if h, st, ok := n.stage.NextStatus(n.now); ok {
		n.message(innetwork.Up, &h, n.body[:st.Put(n.body[:])])
	}
}

// message sends one datagram. If there is no room for it, it is lost: who waits for it asks again.
func (n *Node) message(member int, h *wire.Slot, body []byte) {
	l := n.link(member)
	n.add(l, h, body)
	l.Flush()
}

// add puts a datagram into the next batch of a link; it reports whether there was room.
func (n *Node) add(l Link, h *wire.Slot, payload []byte) bool {
	n.head = *h
	if !l.Add(&n.head, payload) {
		return false
	}
	n.Charge(wire.SlotSize + len(payload))
	return true
}

// send sends results and partial results, as far as credit goes: for each link in
// batches. While one has no room, the rest of the stripe waits.
func (n *Node) send() (busy bool) {
	for n.credit > -Quantum {
		out, ok := n.next()
		if !ok {
			break
		}
		l := n.link(out.Member)
		if l != n.to && !n.flush() || !l.Writable() {
			break
		}
		n.to = l
		if !n.add(l, &out.Head, out.Payload) {
			if !n.flush() {
				break
			}
			continue
		}
		n.adding = append(n.adding, out)
		n.pop(&out)
		busy = true
	}
	n.flush()
	return busy
}

// next returns the next datagram to send: the ones that found no room come first.
func (n *Node) next() (innetwork.Out, bool) {
	if len(n.unsent) > 0 {
		return n.unsent[0], true
	}
	return n.stage.Next()
}

func (n *Node) pop(o *innetwork.Out) {
	if len(n.unsent) > 0 {
		n.unsent = n.unsent[:copy(n.unsent, n.unsent[1:])]
		return
	}
	n.stage.Pop(n.now, o)
}

// flush sends the batch and keeps the datagrams that found no room. It reports whether all went. If a slot is free by
// the time that the rest goes, its datagram is stale for the receiver.
func (n *Node) flush() bool {
	if n.to == nil {
		return true
	}
	sent := n.to.Flush()
	all := sent == len(n.adding)
	if !all { // in their order, before the datagrams that are unsent already
		n.unsent = slices.Insert(n.unsent, 0, n.adding[sent:]...)
	}
	n.adding, n.to = n.adding[:0], nil
	return all
}
