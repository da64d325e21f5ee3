package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Control takes a control message from another rank. Messages that no correct rank sends are
// dropped and counted.
func (c *Comm) Control(now Time, from int, m *wire.Control) {
	c.tick(now)
	if c.err != nil {
		return
	}
	p := c.ops.find(m.Seq)
	if p == nil {
		return // of an operation that every rank has finished with
	}
	if c.cfg.Lossless && m.Kind != wire.Compare {
		c.stats.Dropped++
		return
	}
	right := from == c.topo.Right()
	before := from == (c.cfg.Rank+c.cfg.Size-1)%c.cfg.Size // chains follow the numbers of ranks
	switch {
	case m.Kind == wire.Ready || m.Kind == wire.Compare:
		c.takeCall(p, from, m)
		c.advance()
	case m.Kind == wire.Done && right && p.state == active:
		c.rightDone(p)
		c.advance()
	case m.Kind == wire.Activate && before && p.state == active:
		p.sender.turn, p.moved = true, c.now
		c.advance()
	case m.Kind == wire.Credit && (p.state == active || p.state == retained):
		c.credit(p, from, m) // after the end, too: its root learns from the last
		c.verify()
	case m.Kind == wire.Credit && p.state == early && p.calls.hold(from, m, c.topo.Rounds()):
	case m.Kind == wire.Begin && p.state != early:
		c.takeBegin(p, from, m)
	case m.Kind == wire.Fetch && right && p.known() && !p.handshake.right:
		c.fetch(p, from, m)
		c.verify()
	case m.Kind == wire.Offer && from == c.topo.Left() && p.state == active:
		c.offered(p, m)
		c.verify()
	default:
		c.stats.Dropped++
	}
}

// rightDone takes the right neighbour's final handshake. If it has everything, all roots have sent
// everything.
func (c *Comm) rightDone(p *op) {
	p.handshake.right, p.moved = true, c.now
	if p.received() && p.sender.done(&p.layout) {
		c.waitedFor[c.topo.Right()].Handshake += p.waited(c.now, c.freed)
	}
	c.backlog.remove(p.repairs.drop())
	if p.link.of != nil {
		c.markSending(p, false)
	}
	if p.timer.armed() {
		// Its message may have overtaken datagrams that wait in this rank's queue: they have the time that a scheduler
		// may take.
		p.timer.hasten(c.now + c.pace.alpha)
	}
}

// credit takes the limit that a child, and the ranks below it, set for a root.
func (c *Comm) credit(p *op, from int, m *wire.Control) {
	if p.mode.relay {
		return // the sender does not know yet that there is no window
	}
	kept := p.state == active && c.sendable(p, true) == 0
	shard := p.credit.receive(&p.layout, from, m)
	if shard < 0 {
		c.stats.Dropped++
		return
	}
	p.moved = c.now
	if kept && c.sendable(p, true) > 0 {
		c.waitedFor[from].Credit += p.waited(c.now, c.freed)
	}
	if m.Count == 1 {
		c.reach.want(c.now, true)
	}
	if shard != p.own {
		p.credit.report(&p.layout, &c.out, shard)
		return
	}
	room := p.credit.room(&p.layout)
	if p.mode.kind == serial {
		s := &c.series[c.cfg.Rank]
		s.known = max(s.known, p.link.base+room-p.mode.window)
	}
	p.sender.progress.credited(c.now, room)
	if p.sender.progress.reached == p.credit.most(&p.layout) { // none will follow
		c.flows.of(&p.layout).learn(&p.sender.progress, p.credit.floor)
	}
}

// Guesses reports whether a message asks for chunks because of a silence alone: nothing else says that they were sent.
func Guesses(m *wire.Control) bool { return m.Kind == wire.Fetch && m.Round&wire.FetchKnown == 0 }

// Unsent says, before a message that Guesses, how many of the chunks that this rank has multicast last are still in its
// host's queue. They are on their way to the rank that asks for them, and a rank that lacks them later asks again.
// Ranks of a host share the queue, so that it may hold more than any receiver expects.
func (c *Comm) Unsent(chunks int) { c.unsent = chunks }

// fetch takes the right neighbour's request. This rank sends the chunks that it holds; it notes the ones that it lacks,
// and asks further left for them.
func (c *Comm) fetch(p *op, from int, m *wire.Control) {
	theirs, root := opOf(m.Collective, m.Root, int(m.Bytes)), int(m.Root)
	if p.state != early && root < c.cfg.Size {
		call := *m
		call.Root = uint16(theirs.Root)
		if !c.sameCall(p, from, &call) {
			return
		}
	}
	if root >= c.cfg.Size || p.differs(theirs, m.Digest) || uint64(m.PSN)+uint64(m.Count) > uint64(p.chunks) {
		c.stats.Dropped++
		return
	}
	certain := m.Round&wire.FetchKnown != 0
	c.pushes = c.pushes || m.Round&wire.FetchPushed != 0
	wanted := chunkRange{p.shard(root), int(m.PSN), int(m.PSN) + int(m.Count)}
	if wanted.shard == p.own {
		wanted.to = min(wanted.to, p.sender.next) // the rest is still to be multicast
		if !certain {
			wanted.to = max(wanted.from, min(wanted.to, p.sender.next-c.unsent)) // and this is on its way
		}
	}
	c.backlog.add(p.seq, p.repairs.want(&p.layout, &p.receiver, wanted, certain))
	if wanted.shard != p.own && p.state == active {
		c.ask(p, request{chunkRange: wanted, certain: certain})
	}
}
