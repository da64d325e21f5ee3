package network

import (
	"math"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// link is one direction of a link, with the port that sends into it.
type link struct {
	free    int64   // when the port has sent all that it holds, ps
	perByte float64 // ps
	room    int64   // how much a switch's port may hold, as time, ps
	latency int64   // ps
	most    int64   // how much the port held at most, as time, ps
	to      int32
	reverse int32
	loss    int32 // in losses, -1: loses nothing
	bad     int8  // state of a bursty link: 1 in a run of losses, -1 out of one
	down    *spans
}

// layLinks gives every link its rate, its queue and its losses.
func (n *Network) layLinks() {
	slow := map[int]float64{}
	for _, s := range n.Faults.SlowNIC {
		slow[s.Node] = s.Factor
	}
	downs := n.Faults.downs()
	kinds := map[float64]int32{}
	for q := range n.links {
		p := &n.tree.Ports[q]
		l := &n.links[q]
		gbps := n.Gbps
		if p.Tier > 0 {
			gbps = n.UplinkGbps
		}
		host := -1
		if p.Tier == 0 {
			host = min(p.From, p.To) // hosts come before switches
			if f, ok := slow[host]; ok {
				gbps /= f
			}
		}
		*l = link{
			perByte: 8000 / gbps, latency: ps(n.Latency), room: math.MaxInt64,
			to: int32(p.To), reverse: int32(p.Reverse), loss: -1,
		}
		if n.Queue > 0 && !n.Lossless && n.tree.Switch(p.From) {
			l.room = l.time(int64(n.Queue))
		}
		if host >= 0 {
			l.down = downs[host]
		}
		if mean := n.Faults.mean(p, host); mean > 0 {
			k, ok := kinds[mean]
			if !ok {
				k = int32(len(n.losses))
				kinds[mean] = k
				n.losses = append(n.losses, newLoss(mean, n.Faults.Burst))
			}
			l.loss = k
		}
	}
}

// mean returns the probability of a loss on a link.
func (f *Faults) mean(p *fattree.Port, host int) float64 {
	pass := 1 - f.LinkLoss
	if host >= 0 && p.To == host {
		pass *= 1 - f.Loss
	}
	for _, l := range f.Lossy {
		if l.A == p.From && l.B == p.To || l.B == p.From && l.A == p.To {
			pass *= 1 - l.Loss
		}
	}
	return 1 - pass
}

// time returns how long bytes take. The conversion keeps the product from
// being fused with the sum, so that all machines round alike.
func (l *link) time(bytes int64) int64 { return int64(float64(float64(bytes)*l.perByte) + 0.5) }

// transmit sends a packet: its head is at a port now, and its tail follows lag later. It returns
// when the head reaches the other end and how far the tail is behind it there, in ps; false: it did
// not get there.
func (n *Network) transmit(p *Packet, q int, lag int64) (head, tail int64, ok bool) {
	now := ps(n.now)
	l, c := &n.links[q], &n.counts[q]
	all := l.time(int64(p.wire))
	first := all
	if int(p.wire) > n.MTU {
		first = l.time(int64(n.MTU))
	}
	start := max(now, l.free)
	if n.rooms != nil && now-l.free < 1000 {
		start = l.free // the event was rounded up; at once is when the port got free
	}
	// The last packet of a train leaves no earlier than it has come.
	end := max(start+all, now+lag+first)
	// The port holds most when the first packet of a train comes or when the last
	// does, for it drains and fills evenly meanwhile.
	held := max(start-now+first, end-now-lag)
	if p.tries > 0 { // of its window, which begins anew after a loss, no more than fits
		held = max(start-now+first, min(held, l.room))
	}
	if held > l.room {
		c.Dropped += uint64(p.Count)
		n.lost(p)
		return 0, 0, false
	}
	l.most = max(l.most, held)
	l.free = end
	c.Packets[p.Class] += uint64(p.Count)
	c.Bytes[p.Class] += uint64(p.wire)
	if l.loss >= 0 || l.down != nil || len(n.splits) > 0 || len(n.Faults.Dead) > 0 || len(n.Faults.Filtered) > 0 {
		if n.loses(l, start, p) {
			c.Lost += uint64(p.Count)
			n.lost(p)
			return 0, 0, false
		}
	}
	return start + first + l.latency, end - start - first, true
}

// Counter counts the packets that a port has sent, by class, and their fate.
type Counter struct {
	Packets [Classes]uint64 // also those lost later; a train as its packets
	Bytes   [Classes]uint64 // on the wire
	Dropped uint64          // packets that the queue had no room for, sent nowhere
	Lost    uint64          // packets lost on the link
	Corrupt uint64          // packets that the host's NIC dropped
	Peak    int             // bytes that the queue held at most, with the packet being sent
}

// Sum returns the packets and the bytes of all classes.
func (c *Counter) Sum() (packets, bytes uint64) {
	for i := range Classes {
		packets += c.Packets[i]
		bytes += c.Bytes[i]
	}
	return packets, bytes
}

// Counters returns the counters of all ports, as they are now.
func (n *Network) Counters() []Counter {
	all := make([]Counter, len(n.counts))
	copy(all, n.counts)
	for q := range all {
		if n.rooms == nil {
			all[q].Peak = int(math.Round(float64(n.links[q].most) / n.links[q].perByte))
		}
	}
	return all
}

// Backlog returns for how long a host's NIC is busy with what was sent, of a
// switch its busiest port.
func (n *Network) Backlog(node, rail int) Time {
	if !n.tree.Switch(node) {
		port := n.tree.Up(node, rail)
		return Time(n.behind(node, port, n.load(port)) / 1000)
	}
	most := int64(0)
	first, downs := n.tree.Downlinks(node)
	for q := first; q < first+downs; q++ {
		most = max(most, n.load(q))
	}
	return Time(most / 1000)
}

// load returns how long a port takes to send all that it holds, in ps.
func (n *Network) load(q int) int64 {
	l := &n.links[q]
	rest := max(0, l.free-ps(n.now))
	if n.rooms != nil {
		rest += l.time(n.rooms.ports[q].bytes)
	}
	return rest
}
