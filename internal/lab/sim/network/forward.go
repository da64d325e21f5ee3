package network

import "fmt"

// arrive lets a packet arrive at a switch through a port.
func (n *Network) arrive(p *Packet, q int, lag int64) {
	l := &n.links[q]
	node := int(l.to)
	if n.crashed && (n.state[node].dead || n.tree.Ports[q].Tier == 0 && n.stale(p)) {
		// What a crashed host still had in its NIC is gone; a crashed switch
		// is as good as a broken link.
		n.counts[q].Lost += uint64(p.Count)
		n.lost(p)
		n.leave(q, p)
		return
	}
	if node == int(p.To) {
		if done := max(ps(n.now)+lag, n.compute(p, node, ps(n.now))); done > ps(n.now) {
			n.push(done, event{kind: deliver, port: int32(q), n: 1, tag: n.takes()}, p)
			return
		}
		n.deliver(p, q)
		n.leave(q, p)
		return
	}
	n.forward(p, node, q, lag)
}

// forward sends a packet on from a node, which it reached through a port (-1:
// it starts here).
func (n *Network) forward(p *Packet, node, in int, lag int64) {
	if p.To == Multicast {
		n.replicate(p, node, in, lag)
		return
	}
	q := n.route(p, node)
	if n.rooms != nil {
		n.enqueue(p, q, n.enter(in, 1), lag)
		return
	}
	n.spread(p, q, 1, -1, lag)
}

// route returns the port through which a unicast packet leaves a node.
func (n *Network) route(p *Packet, node int) int {
	if !n.tree.Switch(node) {
		return n.up(p)
	}
	if !n.Adaptive {
		q := n.tree.Next(node, int(p.To), p.path)
		if q < 0 {
			panic(fmt.Sprintf("network: no route from switch %d to switch %d, which is in another rail", node, p.To))
		}
		return q
	}
	first, count, step := n.tree.Equal(node, int(p.To), p.path)
	if count == 0 {
		panic(fmt.Sprintf("network: no route from switch %d to switch %d, which is in another rail", node, p.To))
	}
	n.turn++
	best, least := -1, int64(0)
	for i := range count {
		q := first + step*((i+n.turn)%count)
		if load := n.load(q); best < 0 || load < least {
			best, least = q, load
		}
	}
	return best
}

// replicate sends a packet to all ports of its tree but the one it came from.
func (n *Network) replicate(p *Packet, node, in int, lag int64) {
	tree := int(uint32(p.Group) % uint32(n.tree.Trees()))
	up := n.tree.Uplink(tree, node)
	first, downs := 0, 0
	if n.tree.Switch(node) {
		if in < 0 && !n.tree.Member(tree, node) {
			panic(fmt.Sprintf("network: switch %d is not in multicast tree %d", node, tree))
		}
		first, downs = n.tree.Downlinks(node)
	}
	back := -1
	if in >= 0 {
		back = int(n.links[in].reverse)
	}
	if up == back {
		up = -1
	}
	if n.rooms != nil {
		n.enqueueAll(p, first, downs, up, in, back, lag)
		return
	}
	if up >= 0 {
		n.spread(p, up, 1, -1, lag)
	}
	n.spread(p, first, downs, back, lag)
}

// spread sends a packet through ports side by side but one. What comes to the
// same at the same moment becomes one event.
func (n *Network) spread(p *Packet, first, count, but int, lag int64) {
	var run event
	var at int64
	for q := first; q < first+count; q++ {
		if q == but {
			continue
		}
		head, tail, ok := n.transmit(p, q, lag)
		if !ok {
			continue
		}
		k, t, tail := n.reach(p, q, head, tail)
		if k == nothing {
			continue
		}
		if run.kind == k && t == at && int(run.port+run.n) == q && run.tag == uint64(tail) {
			run.n++
			continue
		}
		if run.kind != nothing {
			n.push(at, run, p)
		}
		at, run = t, event{kind: k, port: int32(q), n: 1, tag: uint64(tail)}
	}
	if run.kind != nothing {
		n.push(at, run, p)
	}
}

// reach says what comes of a packet that reaches the end of a link at a
// moment.
func (n *Network) reach(p *Packet, q int, head, tail int64) (k kind, at, lag int64) {
	to := int(n.links[q].to)
	if n.tree.Switch(to) {
		return arrive, head, tail
	}
	if n.mishaps {
		late, ok := n.mishap(p, q, head, tail)
		if !ok {
			return nothing, 0, 0
		}
		head += late
	}
	if n.byLand || n.rooms != nil {
		return land, head, tail
	}
	if p.Reliable {
		n.landReliable(p, q, head, tail, 0)
		return nothing, 0, 0
	}
	done, ok := n.work(p, to, head, tail)
	if !ok {
		return nothing, 0, 0
	}
	return deliver, done, 0
}
