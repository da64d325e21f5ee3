package network

// A lossless network has real queues. Each link has room for Queue bytes at its
// far end, and its port sends a packet only if that has room for it, as
// InfiniBand's credits do. A packet keeps its room until the switch has sent
// all its copies, or the host's worker has taken it; the word that there is
// room again travels in no time. A packet that is larger than Queue goes into
// empty room. As routes to hosts and multicast trees go up and then down, rooms
// wait for each other in no circle.

// rooms is the state of a lossless network.
type rooms struct {
	ports []lossless
	stays []stay
	free  []int32 // of stays
}

// lossless is a port with its queue and the room at the far end of its link.
type lossless struct {
	queue fifo[waiting]
	busy  bool
	last  waiting // being sent
	bytes int64   // in the queue
	used  int64   // of the room at the far end
}

// waiting is a packet in a port's queue.
type waiting struct {
	packet int32
	stay   int32
	tail   int64 // when its tail is here, ps
}

// stay is a packet's use of the room at the end of the link that it came by,
// -1: of its sender's memory.
type stay struct {
	port   int
	copies int // still to be sent
}

func newRooms(ports int) *rooms { return &rooms{ports: make([]lossless, ports)} }

// takes is 1 if what reaches the end of a link takes room there.
func (n *Network) takes() uint64 {
	if n.rooms == nil {
		return 0
	}
	return 1
}

// enter lets a packet stay where it came in until its copies are sent.
func (n *Network) enter(in int, copies int) int32 {
	r := n.rooms
	if len(r.free) == 0 {
		r.stays = append(r.stays, stay{})
		r.free = append(r.free, int32(len(r.stays)-1)) // bounded by memory
	}
	s := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.stays[s] = stay{in, copies}
	return s
}

// enqueueAll queues a packet at all ports of its tree but the one it came from.
func (n *Network) enqueueAll(p *Packet, first, downs, up, in, back int, lag int64) {
	copies := downs
	if back >= first && back < first+downs {
		copies--
	}
	if up >= 0 {
		copies++
	}
	if copies == 0 {
		n.leave(in, p)
		return
	}
	s := n.enter(in, copies)
	if up >= 0 {
		n.enqueue(p, up, s, lag)
	}
	for q := first; q < first+downs; q++ {
		if q != back {
			n.enqueue(p, q, s, lag)
		}
	}
}

// enqueue queues a packet at a port.
func (n *Network) enqueue(p *Packet, q int, s int32, lag int64) {
	x := &n.rooms.ports[q]
	p.refs++
	x.queue.push(waiting{p.id, s, ps(n.now) + lag})
	x.bytes += int64(p.wire)
	n.serve(q)
}

// serve sends the next packet of a port if there is one and room for it.
func (n *Network) serve(q int) {
	x := &n.rooms.ports[q]
	if x.busy || x.queue.len() == 0 {
		return
	}
	w := *x.queue.front()
	p := n.packet(w.packet)
	if n.Queue > 0 && x.used > 0 && x.used+int64(p.wire) > int64(n.Queue) {
		return
	}
	x.queue.pop()
	x.bytes -= int64(p.wire)
	x.busy, x.last = true, w
	head, tail, ok := n.transmit(p, q, max(0, w.tail-ps(n.now)))
	if ok {
		x.used += int64(p.wire)
		n.counts[q].Peak = max(n.counts[q].Peak, int(x.used))
		k, at, lag := n.reach(p, q, head, tail)
		if k == nothing {
			n.vacate(q, p)
		} else {
			n.push(at, event{kind: k, port: int32(q), n: 1, tag: uint64(lag)}, p)
		}
	}
	n.push(n.links[q].free, event{kind: sent, port: int32(q), n: 1}, p)
	n.done(p)
}

// sent lets a port go on after it has sent a packet.
func (n *Network) sent(p *Packet, q int) {
	x := &n.rooms.ports[q]
	x.busy = false
	s := x.last.stay
	st := &n.rooms.stays[s]
	if st.copies--; st.copies == 0 {
		in := st.port
		n.rooms.free = append(n.rooms.free, s)
		n.leave(in, p)
	}
	n.serve(q)
}

// leave frees the room that a packet took at the end of a link, and lets the
// port there send on.
func (n *Network) leave(q int, p *Packet) {
	if n.rooms == nil || q < 0 {
		return
	}
	n.vacate(q, p)
	n.serve(q)
}

func (n *Network) vacate(q int, p *Packet) { n.rooms.ports[q].used -= int64(p.wire) }
