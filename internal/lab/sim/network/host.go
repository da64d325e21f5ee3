package network

import (
	"math"
	"slices"
)

// host is a host's receive path. It has the size of a line of a processor's cache, and so has a
// worker: a packet to all hosts looks at all of them.
type host struct {
	received, overflow, gone uint64 // see HostCounter

	cost    int64   // a packet, ps
	perByte float64 // of payload, ps
	busy    int64   // ps
	forget  Time    // what was in its queues until then is gone with a crash
	pauses  *spans
}

// HostCounter is what a host has received. Packets of a train count one by one.
type HostCounter struct {
	Received uint64 // packets, duplicates too
	Overflow uint64 // packets that found the queue full
	Gone     uint64 // packets that found the host crashed, or their sender restarted
	Busy     Time   // of all workers together
}

// Host returns a host's counters.
func (n *Network) Host(node int) HostCounter {
	h := &n.hosts[node]
	return HostCounter{Received: h.received, Overflow: h.overflow, Gone: h.gone, Busy: Time(h.busy / 1000)}
}

// Busy returns until when a host's workers are busy with the packets that have come to it by now; a
// train has come when its head has. A driver that has packets in its queue does not take silence
// for a loss. A packet that is still on the last link, or in the queue before it, does not count. A
// moment that has passed: the workers are idle.
func (n *Network) Busy(node int) Time {
	busy := int64(0)
	for w := range n.Workers {
		busy = max(busy, n.workers[node*n.Workers+w].busyAt(ps(n.now)))
	}
	return Time((busy + 999) / 1000)
}

// furnishHosts gives every host its cost and its pauses, and its workers their queues.
func (n *Network) furnishHosts() {
	if n.Depth > 0 && !n.Lossless {
		for i := range n.workers {
			n.workers[i].queue = &fifo[taken]{}
		}
	}
	for h := range n.hosts {
		n.hosts[h].cost, n.hosts[h].perByte = ps(n.Cost), n.CostPerByte*1000
	}
	for _, s := range n.Faults.Slow {
		h := &n.hosts[s.Node]
		h.cost = int64(math.Round(float64(h.cost) * s.Factor))
		h.perByte *= s.Factor
	}
	for _, p := range n.Faults.Pauses {
		n.hosts[p.Node].pauses = n.hosts[p.Node].pauses.add(p.At, p.For)
	}
}

// worker takes packets off a queue of a host. Like a port it is a moment; the
// queue is kept only to know how full it is.
type worker struct {
	free   int64 // when it has taken all that it was given, ps
	busy   int64 // when it has taken what had come when it was last asked, ps
	coming fifo[coming]
	queue  *fifo[taken] // nil: has room for any number
	queued int          // packets of queue
}

// coming is a packet or a train that a worker was given before it is there.
type coming struct{ head, done int64 } // ps

// taken is a packet or a train that a worker will have taken at a moment.
type taken struct {
	done  int64
	count int
}

// work gives a packet to its worker at a host: its head arrives at a moment, the
// tail follows. It returns when it will have been taken; false: it finds the
// queue full.
func (n *Network) work(p *Packet, to int, head, tail int64) (done int64, ok bool) {
	h, w := &n.hosts[to], &n.workers[to*n.Workers+int(p.worker)]
	work := h.cost * int64(p.Count)
	if h.perByte > 0 {
		work += int64(float64(p.Bytes) * h.perByte)
	}
	one := work
	if work > 0 && p.Count > 1 {
		one /= int64(p.Count)
	}
	start := max(head, w.free)
	// A train is taken while it comes in, its last packet not before it is there.
	done = max(start+work, head+tail+one)
	done = max(done, n.compute(p, to, head))
	if h.pauses != nil {
		done = h.pauses.after(start, done-start)
	}
	if w.queue != nil && !p.Reliable && !w.admit(head+tail, done, one, int(p.Count), n.Depth) {
		h.overflow += uint64(p.Count)
		return 0, false
	}
	h.busy += work
	w.free = done
	switch now := ps(n.now); {
	case head <= now:
		w.busy = done
	case done > head: // else it is taken the moment it comes, and keeps nobody busy
		w.busyAt(now) // forgets the packets that are there by now
		w.coming.push(coming{head, done})
	}
	return done, true
}

// busyAt returns when the worker will have taken all packets that are there by now.
func (w *worker) busyAt(now int64) int64 {
	for w.coming.len() > 0 && w.coming.front().head <= now {
		w.busy = max(w.busy, w.coming.front().done)
		w.coming.pop()
	}
	return w.busy
}

// admit adds packets to the queue if it holds no more than depth when they
// have arrived.
func (w *worker) admit(at, done, one int64, count, depth int) bool {
	for w.queue.len() > 0 && w.queue.front().done <= at {
		w.queued -= w.queue.front().count
		w.queue.pop()
	}
	ahead := w.queued
	if w.queue.len() > 0 && w.queue.front().count > 1 { // a train that is taken in part
		t := w.queue.front()
		ahead -= t.count - left(t.done-at, one, t.count)
	}
	own := left(done-at, one, count)
	if ahead+own > depth {
		return false
	}
	w.queue.push(taken{done, count})
	w.queued += count
	return true
}

// left returns how many of count packets are not taken yet when the last will
// be in a while.
func left(while, one int64, count int) int {
	if count == 1 || one == 0 {
		return min(count, 1)
	}
	return int(min(int64(count), (while+one-1)/one))
}

// land lets a packet land at a host now; takes is 1 if it takes room on its
// link.
func (n *Network) land(p *Packet, q int, lag int64, takes uint64) {
	if p.Reliable {
		n.landReliable(p, q, ps(n.now), lag, takes)
		return
	}
	done, ok := n.work(p, int(n.links[q].to), ps(n.now), lag)
	if ok {
		n.push(done, event{kind: deliver, port: int32(q), n: 1, tag: takes}, p)
	} else if takes != 0 {
		n.leave(q, p)
	}
}

// deliver hands a packet to the node behind a port.
func (n *Network) deliver(p *Packet, q int) {
	node := int(n.links[q].to)
	host := node < len(n.hosts)
	if n.crashed {
		stale := p.To != Multicast && n.stale(p)
		if host && !p.Reliable {
			stale = stale || n.now <= n.hosts[node].forget
		}
		if stale || n.state[node].dead {
			if host {
				n.hosts[node].gone += uint64(p.Count)
			}
			return
		}
	}
	if host {
		n.hosts[node].received += uint64(p.Count)
	}
	if x := n.nodes[p.share][node]; x != nil {
		x.Receive(p)
	}
}

// span is a stretch of time, without its end, in ps.
type span struct{ from, to int64 }

// spans are stretches of time, in order and apart.
type spans []span

// add adds a stretch.
func (s *spans) add(at, length Time) *spans {
	var all spans
	if s != nil {
		all = *s
	}
	all = append(all, span{ps(at), ps(at + length)})
	slices.SortFunc(all, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	merged := all[:0]
	for _, x := range all {
		if k := len(merged); k > 0 && x.from <= merged[k-1].to {
			merged[k-1].to = max(merged[k-1].to, x.to)
		} else if x.to > x.from {
			merged = append(merged, x)
		}
	}
	return &merged
}

// after returns when work that starts at a moment is done if it rests in all
// stretches; it is not done within one.
func (s *spans) after(start, work int64) int64 {
	for _, x := range *s {
		switch {
		case x.to <= start:
		case x.from <= start:
			start = x.to
		case x.from <= start+work:
			work += x.to - x.from
		default:
			return start + work
		}
	}
	return start + work
}

// has says whether a moment lies in a stretch.
func (s *spans) has(at int64) bool {
	i, _ := slices.BinarySearchFunc(*s, at, func(x span, at int64) int {
		if x.to <= at {
			return -1
		}
		return 1
	})
	return i < len(*s) && (*s)[i].from <= at
}
