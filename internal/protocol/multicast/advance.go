package multicast

import "slices"

// advance does what has become possible. It is called after every event that may have made
// something possible, and is the only place that does this, in this order:
//
//  1. for each operation in flight, from the oldest on:
//     a. it enters its barrier, unless older ones are in the way (mayEnter), or if it has none and
//     is serial its root may send, unless older ones are in the way (mayFlow);
//     b. if all of its chunks are here, its own are sent and nothing is read, it takes its part in the final
//     handshake, and when that is over it is done;
//  2. operations that are not needed any more are released, from the oldest on.
//
// Older operations come first since they are in the way of later ones: what completes in 1b lets
// the next enter its barrier in the same pass.
func (c *Comm) advance() {
	if c.err != nil {
		return
	}
	var ahead ahead
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		if p.mode.barrier && !p.barrier.entered && ahead.mayEnter() {
			p.barrier.enter(c.reach.wants(c.now))
			p.waits = c.now
			c.disseminate(p)
		}
		if p.link.of != nil && !p.link.admitted && ahead.mayFlow(p.root, c.together(p)) {
			p.link.admitted = true
			c.grant(p.link.of)
		}
		if p.barrier.open && p.received() && p.sender.done(&p.layout) && p.link.through(p.seq) && c.readAll(p) {
			p.handshake.send(&p.layout, &c.out)
			if p.handshake.over(&p.layout) {
				c.flows.of(&p.layout).learn(&p.sender.progress, p.credit.floor)
				c.complete(p, nil)
				continue
			}
		}
		ahead.count(p)
	}
	c.release()
	c.verify()
}

// ahead is the operations in flight before one.
type ahead struct {
	eager int // the result of each is still in the arena, or on its way there
	late  int // large ones that have not been received here
	// Roots of serial ones that have not been received here.
	roots [mostShares]int
	n     int
	// waits: one of them is not admitted, so none behind it is.
	waits bool
}

func (a *ahead) count(p *op) {
	switch {
	case p.mode.kind == eager:
		a.eager++
	case p.received():
	case p.mode.kind == serial:
		a.waits = a.waits || !p.link.admitted
		if a.n < mostShares && !a.sends(p.root) {
			a.roots[a.n] = p.root
			a.n++
		}
	default:
		a.late++
	}
}

// sends reports whether a serial one of a root has not been received.
func (a *ahead) sends(root int) bool { return slices.Contains(a.roots[:a.n], root) }

// mayEnter reports whether an operation behind these may enter its barrier: it says that the arena
// is free, and that this rank's queue has room. With one older operation still under way the
// barrier hides behind its data. With more, their windows would add up in the queue.
func (a *ahead) mayEnter() bool { return a.eager == 0 && a.late+min(a.n, 1) < 2 }

// mayFlow reports whether this rank's queue has room for a serial one of a root behind these: while
// roots take turns the next one has its credit before the last one has sent everything, as with
// barriers.
func (a *ahead) mayFlow(root int, together bool) bool {
	return a.late < 2 && !a.waits && (together || a.n < 2 || a.sends(root))
}

// disseminate sends what may be sent of an operation's barrier, and opens it once everybody is
// ready.
func (c *Comm) disseminate(p *op) {
	p.barrier.send(&p.layout, &c.out)
	if !p.barrier.open && p.barrier.passed(c.topo.Rounds()) {
		p.barrier.open = true
		c.reach.want(c.now, p.barrier.relay)
		if p.barrier.relay && p.mode.kind == large {
			c.relay(p)
		}
		c.epoch.open(p.seq)
		c.armAll()
	}
}

// release frees finished operations in order. An eager one is kept until a later barrier has shown
// that everybody has it; on a lossless fabric they are kept for a while to be compared with what a
// slower neighbour tells.
func (c *Comm) release() {
	t := &c.ops
	for t.first != t.posted && t.at(t.first).state != active {
		t.first++
	}
	for t.oldest != t.first {
		p := t.at(t.oldest)
		if p.mode.kind == eager && !c.epoch.after(p.seq) || c.cfg.Lossless && t.posted-t.oldest <= epochOps {
			return
		}
		c.verifyLast(p)
		c.forget(p)
		p.state = free
		t.oldest++
	}
}

// readAll reports whether no read is under way for an operation that this rank has completely received. It drops offers
// without a read, since they are not needed.
func (c *Comm) readAll(p *op) bool {
	c.offers -= p.pulls.drop(&p.layout)
	return p.pulls.reading == 0
}
