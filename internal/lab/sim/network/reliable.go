package network

// A reliable packet travels as any other, hop by hop. What the sender's timer,
// the acknowledgements and the receiver's reordering would do is done here at
// once: a loss, wherever it happens, puts the packet back to its sender after
// RTO, and a host takes the packets of a flow in the order of their sending.

// tries is after how many losses of one packet chance spares it, so that a
// flow ends even on a link that loses everything by chance. Links that are
// down and queues that are full do not.
const tries = 15

func (p *Packet) spared() bool { return p.Reliable && p.tries >= tries }

// flow is the reliable packets from one node to another.
type flow struct {
	from, to int32
	sent     uint32 // next number
	next     uint32 // that the receiver takes
	waiting  int32  // packets held until their turn
	done     int64  // when the last has been taken, ps
}

// enlist gives a packet its place in its flow.
func (n *Network) enlist(p *Packet) {
	key := uint64(uint32(p.From))<<32 | uint64(uint32(p.To))
	pair := n.pair[p.share]
	f, ok := pair[key]
	if !ok {
		f = int32(len(n.flows)) // bounded by memory
		n.flows = append(n.flows, flow{from: p.From, to: p.To})
		pair[key] = f
	}
	p.flow, p.seq = f, n.flows[f].sent
	n.flows[f].sent++
}

// lost sends a lost packet again in a while, if it is reliable.
func (n *Network) lost(p *Packet) {
	if !p.Reliable {
		return
	}
	if n.GiveUp > 0 && n.now-p.since > n.GiveUp {
		n.push(ps(n.now), event{kind: undelivered, port: p.From}, p)
		return
	}
	n.push(ps(n.now+n.RTO<<min(p.tries, 6)), event{kind: resend, port: p.From}, p)
	p.tries++
}

// resend sends a packet again from its sender.
func (n *Network) resend(p *Packet) {
	if n.stale(p) || n.state[p.From].dead {
		return
	}
	n.leaves(p)
}

// landReliable lets a packet land at a host at a moment. If others of its flow
// are to come first, the packet is held. Else it is taken, and so are the
// packets that waited for it. takes is 1 if the packet takes room on its link;
// a held packet takes none.
func (n *Network) landReliable(p *Packet, q int, head, tail int64, takes uint64) {
	f := &n.flows[p.flow]
	switch {
	case n.crashed && (n.state[p.To].dead || n.stale(p)):
		n.hosts[p.To].gone += uint64(p.Count)
	case p.seq != f.next:
		p.refs++
		p.landed = head + tail
		f.waiting++
		n.held[slot(p.flow, p.seq)] = p.id
	default:
		f.next++
		done := n.workInOrder(p, head, tail)
		n.push(done, event{kind: deliver, port: int32(q), n: 1, tag: takes}, p)
		n.release(p, q, head+tail)
		return
	}
	if takes != 0 {
		n.leave(q, p)
	}
}

// release takes the held packets that come next after p, at a moment.
func (n *Network) release(p *Packet, q int, at int64) {
	f := &n.flows[p.flow]
	for f.waiting > 0 {
		key := slot(p.flow, f.next)
		id, ok := n.held[key]
		if !ok {
			return
		}
		delete(n.held, key)
		f.waiting--
		f.next++
		next := n.packet(id)
		at = max(at, next.landed)
		done := n.workInOrder(next, at, 0)
		n.push(done, event{kind: deliver, port: int32(q), n: 1}, next)
		n.done(next)
	}
}

// workInOrder lets the next packet of a flow through the receive path. If
// another worker would have taken it earlier, it waits for the packet before
// it.
func (n *Network) workInOrder(p *Packet, head, tail int64) int64 {
	done, _ := n.work(p, int(p.To), head, tail)
	f := &n.flows[p.flow]
	f.done = max(f.done, done)
	return f.done
}

func slot(flow int32, seq uint32) uint64 {
	return uint64(uint32(flow))<<32 | uint64(seq)
}

// stale says whether a unicast packet's sender or receiver, or a multicast
// packet's sender, has crashed since it was sent.
func (n *Network) stale(p *Packet) bool {
	epoch := n.state[p.From].epoch
	if p.To != Multicast {
		epoch += n.state[p.To].epoch
	}
	return epoch != p.epoch
}

// Crash stops a node: it receives and sends nothing from now on, its Wakes are
// gone, and so are packets of either class to it and unicast packets from it,
// wherever they are. Copies of a multicast that are past the first switch go
// on. A crashed switch also forwards nothing.
func (n *Network) Crash(node int) {
	s := &n.state[node]
	if s.dead {
		return
	}
	n.crashed = true
	s.dead = true
	n.age(node)
	if node >= len(n.hosts) {
		return
	}
	h := &n.hosts[node]
	h.forget = n.now
	for w := range n.Workers {
		h.forget = max(h.forget, Time((n.workers[node*n.Workers+w].free+999)/1000))
	}
}

// age begins a new epoch of a node.
func (n *Network) age(node int) {
	n.state[node].epoch++
	for f := range n.flows {
		if n.flows[f].from == int32(node) || n.flows[f].to == int32(node) {
			n.breakOff(int32(f))
		}
	}
}

// breakOff forgets what a flow holds and starts it anew.
func (n *Network) breakOff(i int32) {
	f := &n.flows[i]
	for seq := f.next; f.waiting > 0; seq++ {
		if id, ok := n.held[slot(i, seq)]; ok {
			delete(n.held, slot(i, seq))
			f.waiting--
			p := n.packet(id)
			if int(p.To) < len(n.hosts) {
				n.hosts[p.To].gone += uint64(p.Count)
			}
			n.done(p)
		}
	}
	f.sent, f.next = 0, 0
}

// Restart starts a crashed node again, with nothing in its queues; its workers
// go on at the moment at which they would have taken the packets that were
// lost. Packets that were sent to it while it was down are gone, even if they
// have not arrived yet.
func (n *Network) Restart(node int) {
	if n.state[node].dead {
		n.state[node].dead = false
		n.age(node)
	}
}
