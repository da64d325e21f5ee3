package search

// bug is an edit of one source file that breaks the protocol.
type bug struct {
	name     string
	file     string // below internal
	old, new string // old occurs once
}

// coreBugs break the multicast protocol.
var coreBugs = []bug{
	{
		name: "a root ignores the credit of all but one", file: "protocol/multicast/credit.go",
		old: `		low = min(low, int(limit))`,
		new: `		low = int(limit)`,
	},
	{
		name: "a credit ignores the ranks below", file: "protocol/multicast/credit.go",
		old: `	for _, limit := range c.below(l, s) {
		low = min(low, limit)
	}
`,
		new: ``,
	},
	{
		name: "a stale datagram is accepted", file: "protocol/multicast/receive.go",
		old: `p.receiver.have.Has(bit) {`,
		new: `p.receiver.have.Has(bit) && p.state != retained {`,
	},

	{
		name: "the arena is used again without a barrier", file: "protocol/multicast/epoch.go",
		old: `	if m.barrier {
		e.begin(seq)
	}`,
		new: `	if m.barrier {
		opener := e.opener
		e.begin(seq)
		if m.barrier = sync || m.kind == large; !m.barrier {
			e.opener = opener
		}
	}`,
	},
	{
		name: "a repair is taken from a buffer that was given back", file: "protocol/multicast/control.go",
		old: `	c.backlog.remove(p.repairs.drop())
`,
		new: ``,
	},
	{
		name: "a datagram alone ends the communicator", file: "protocol/multicast/compare.go",
		old: `if !h.IsMulticast() || c.cfg.Lossless { // it`,
		new: `if true { // it`,
	},
	{
		name: "a stranger's chunk may lie anywhere in the arena", file: "protocol/multicast/receive.go",
		old: `return c.entered(c.epoch.opener) && int(arena) >= c.epoch.bytes`,
		new: `return true`,
	},
	{
		name: "a stranger's chunk is taken before its barrier is entered", file: "protocol/multicast/receive.go",
		old: `p.mode.kind == eager && !c.entered(p.mode.opener)`,
		new: `p.mode.kind == eager && false`,
	},
	{
		name: "what a stranger has begun is not forgotten", file: "protocol/multicast/post.go",
		old: `p.mode.arena != m.arena || p.mode.second != m.second || p.differs(s.called(), s.digest)`,
		new: `p.mode.arena != m.arena && p.differs(s.called(), s.digest)`,
	},
	{
		name: "nobody asks after a silence", file: "protocol/multicast/expire.go",
		old: `				c.askAfterSilence(p)
`,
		new: ``,
	},
	{
		name: "numbers are compared as they are", file: "protocol/wire/serial.go",
		old: `int32(a-b) < 0 }`,
		new: `a < b }`,
	},
	{
		name: "a chunk number is off by one", file: "protocol/multicast/receive.go",
		old: `shard, psn := p.shard(int(h.Root)), int(h.PSN)`,
		new: `shard, psn := p.shard(int(h.Root)), min(int(h.PSN)+1, p.chunks-1)`,
	},
	{
		name: "the first chunk of a shard is never sent", file: "protocol/multicast/sender.go",
		old: `PSN: uint32(s.next), Bytes:`,
		new: `PSN: uint32(max(s.next, 1)), Bytes:`,
	},
	{
		name: "a chunk lands one too far", file: "protocol/multicast/shape.go",
		old: `return s.slot(shard)*s.stride + psn*s.chunk }`,
		new: `return s.slot(shard)*s.stride + min(psn+psn/5, s.chunks-1)*s.chunk }`,
	},
	{
		name: "the slots of shards are forgotten", file: "protocol/multicast/shape.go",
		old: `		s.slots = o.Slots
`,
		new: ``,
	},
	{
		name: "the final handshake is skipped", file: "protocol/multicast/handshake.go",
		old: `return !l.mode.handshake || h.right }`,
		new: `return true }`,
	},
	{
		name: "a duplicate counts", file: "protocol/multicast/receive.go",
		old: `p.receiver.have.Has(bit) {`,
		new: `p.receiver.have.Has(bit) && h.IsRepair() {`,
	},

	{
		name: "a round of the barrier is skipped", file: "protocol/multicast/barrier.go",
		old: `b.received == 1<<rounds-1`,
		new: `b.received|1<<rounds>>1 == 1<<rounds-1`,
	},
	{
		name: "a barrier is entered before older results are out of the arena", file: "protocol/multicast/advance.go",
		old: `return a.eager == 0 && a.late+min(a.n, 1) < 2`,
		new: `return a.late+min(a.n, 1) < 2`,
	},
	{
		name: "a root sends before its turn", file: "protocol/multicast/send.go",
		old: `received && p.sender.leads`,
		new: `received`,
	},
	{
		name: "the right to send is passed on too early", file: "protocol/multicast/send.go",
		old: `	if !p.sender.done(&p.layout) {`,
		new: `	if p.sender.next < p.chunks/2 {`,
	},
	{
		name: "the right to send is not passed on", file: "protocol/multicast/layout.go",
		old: `next < chains.Size && chains.Of(next)`,
		new: `next < chains.Size-1 && chains.Of(next)`,
	},
	{
		name: "a credit is larger than the window", file: "protocol/multicast/credit.go",
		old: `c.taken[chain]+l.mode.window-index*l.chunks`,
		new: `c.taken[chain]+2*l.mode.window-index*l.chunks`,
	},

	{
		name: "a credit is sent for every chunk", file: "protocol/multicast/credit.go",
		old: `return uint32(max(1, window/16, min(least, window/2)))`,
		new: `return 1`,
	},
	{
		name: "children of two trees share a limit", file: "protocol/topology/topology.go",
		old: `return g.Rounds() + v - 1 - bits.OnesCount(uint(v-1))`,
		new: `return g.Rounds() + v - 2 - bits.OnesCount(uint(v-1))`,
	},
	{
		name: "silence goes unnoticed for seconds", file: "protocol/multicast/recover.go",
		old: `p.timer.arm(c.now + after)`,
		new: `p.timer.arm(c.now + 5_000_000_000 + after)`,
	},
	{
		name: "what comes by repair is not passed on", file: "protocol/multicast/relay.go",
		old: `return first || h.IsProbe() // the`,
		new: `return h.IsRelay() // the`,
	},
	{
		name: "a shard is relayed to its own root", file: "protocol/multicast/relay.go",
		old: `if s.rank = c.topo.Right(); s.rank != root {`,
		new: `if s.rank = c.topo.Right(); s.rank >= 0 {`,
	},
	{
		name: "a root relays before all have posted", file: "protocol/multicast/serial.go",
		old: `if p.credit.room(&p.layout) == 0 {`,
		new: `if p.credit.room(&p.layout) < 0 {`,
	},
	{
		name: "the word of others in a barrier is not passed on", file: "protocol/multicast/barrier.go",
		old: `b.relay = b.relay || relay
}

// enter`,
		new: `_ = relay
}

// enter`,
	},
	{
		name: "the last credit is held back", file: "protocol/multicast/credit.go",
		old: `low/c.step == c.reported[s]/c.step && int(low) < c.most(l) {`,
		new: `low/c.step == c.reported[s]/c.step {`,
	},

	{
		name: "a repaired chunk is the one before", file: "protocol/multicast/repair.go",
		old: `Place: p.place(shard, psn)}`,
		new: `Place: p.place(shard, max(psn-1, 0))}`,
	},

	{
		name: "the cutoff is never armed", file: "protocol/multicast/recover.go",
		old: `p.received() || !c.started(p) ||`,
		new: `p.received() || c.started(p) ||`,
	},
	{
		name: "the cutoff is not armed again", file: "protocol/multicast/expire.go",
		old: `			c.arm(p)
`,
		new: `			p.timer.stop()
`,
	},
	{
		name: "the arena is used again too early", file: "protocol/multicast/epoch.go",
		old: `e.bytes += room(s)`,
		new: `e.bytes += room(s) / 2`,
	},

	{
		name: "an eager operation is forgotten before all have it", file: "protocol/multicast/epoch.go",
		old: `return wire.Before(seq, e.opened) }`,
		new: `return wire.Before(seq, e.opened+1) }`,
	},

	{
		name: "all but a chunk of the buffer is enough", file: "protocol/multicast/receiver.go",
		old: `return r.have.Full() }`,
		new: `return r.have.Count() >= r.have.Len()-1 }`,
	},
	{
		name: "a lossless chunk is taken before its operation is posted", file: "protocol/multicast/receive.go",
		old: `return c.cfg.Lossless && c.err == nil && !wire.Before(h.Seq, c.ops.posted)`,
		new: `return c.cfg.Lossless && c.err == nil && !wire.Before(h.Seq, c.ops.posted+1)`,
	},
}

// engineBugs break the driver of the multicast protocol.
var engineBugs = []bug{
	{
		name: "an eager result is taken to have no gaps", file: "engine/arena.go",
		old: `	case o.Dense() && o.copied < o.Bytes:
		copy(o.Recv[:`,
		new: `	case o.Slots == nil && o.copied < o.Bytes:
		copy(o.Recv[:`,
	},
	{
		name: "an eager shard is not put into the arena", file: "engine/gather.go",
		old: `				copy(g.run.Shard, o.Send)
`,
		new: ``,
	},
	{
		name: "a repair is read from the user's buffer where the arena holds it", file: "engine/gather.go",
		old: `return g.arena(r.Place.Second)[r.Place.Offset : r.Place.Offset+n]
	}
	o :=`,
		new: `_ = n
	}
	o :=`,
	},
	{
		name: "a shard that nobody else wants is not copied", file: "engine/gather.go",
		old: `			} else if o.Send != nil {
				g.copyOwn(o, o.Bytes)
			}`,
		new: `			}`,
	},
	{
		name: "chunks count as sent that the fabric has not taken", file: "engine/gather.go",
		old: `g.comm.Sent(r.Head.Seq, n)`,
		new: `g.comm.Sent(r.Head.Seq, r.Count)`,
	},
	{
		name: "messages for which there is no room are dropped", file: "engine/controls.go",
		old: `			g.delayed = append(g.delayed, delayed{m.To, []wire.Control{m.Control}})
`,
		new: ``,
	},
	{
		name: "all but the first delayed message are dropped", file: "engine/controls.go",
		old: `			d.messages = append(d.messages, m.Control)
`,
		new: ``,
	},
	{
		name: "what is overdue is not asked for", file: "engine/gather.go",
		old: `	g.comm.Expire(g.now)
	return true`,
		new: `	return true`,
	},
	{
		name: "a fault does not wake the driver", file: "engine/inbox.go",
		old: `	if b.fault.CompareAndSwap(nil, err) {
		b.wake()
	}`,
		new: `	b.fault.CompareAndSwap(nil, err)`,
	},
	{
		name: "operations in flight outlive a fault", file: "engine/gather.go",
		old: `	g.delayed = nil
	g.finish()`,
		new: `	g.delayed = nil`,
	},
	{
		name: "nobody hears of a broken connection", file: "engine/sink.go",
		old: `	g.cfg.Broken(rank, err)`,
		new: `	_ = err`,
	},
}

// incBugs break the in-network Reduce-Scatter.
var incBugs = []bug{
	{
		name: "a contribution counts twice", file: "protocol/innetwork/stage.go",
		old: `	if s.has(i, member) {
		s.stats.Duplicates++
		return false
	}`,
		new: `	if s.has(i, member) {
		s.stats.Duplicates++
	}`,
	},
	{
		name: "a result is made with one contribution missing", file: "protocol/innetwork/stage.go",
		old: `s.slots[i].count == s.cfg.Members {`,
		new: `s.slots[i].count == max(1, s.cfg.Members-1) {`,
	},
	{
		name: "a slot is freed before its owner has the result", file: "protocol/innetwork/answer.go",
		old: `return sl.sent && !wire.Before(s.members[s.cfg.Owner[sl.head.Owner]].have, n+1)`,
		new: `return sl.sent && !wire.Before(s.members[s.cfg.Owner[sl.head.Owner]].have, n)`,
	},
	{
		name: "a slot is freed with its bits", file: "protocol/innetwork/answer.go",
		old: `	clear(s.bits[i*s.words : (i+1)*s.words])
`,
		new: ``,
	},
	{
		name: "a datagram of another job is accepted", file: "protocol/innetwork/stage.go",
		old: `h.Kind == kind && h.Job == s.cfg.Job &&`,
		new: `h.Kind == kind &&`,
	},

	{
		name: "a member acknowledges one result too many", file: "protocol/innetwork/member.go",
		old: `wire.SlotStatus{Have: s.have,`,
		new: `wire.SlotStatus{Have: min(s.have+1, s.next),`,
	},
	{
		name: "an operation is done when its first stripe is", file: "protocol/innetwork/member.go",
		old: `i < p.low+p.width;`,
		new: `i < p.low+1;`,
	},
	{
		name: "a gap is not reported and nobody polls", file: "protocol/innetwork/feed.go",
		old: `	f.poll = true
	f.pause = min`,
		new: `	f.pause = min`,
	},
	{
		name: "the limit is one slot too far", file: "protocol/innetwork/answer.go",
		old: `limit := s.base + uint32(len(s.slots))`,
		new: `limit := s.base + uint32(len(s.slots)) + 1`,
	},
	{
		name: "a parent's base is taken although an owner below lacks a result", file: "protocol/innetwork/parentlink.go",
		old: `			if !s.acknowledged(p.have, sl) {
				return
			}
`,
		new: ``,
	},
	{
		name: "what is sent again is the slot after", file: "protocol/innetwork/feed.go",
		old: `				return f.scan, true, true`,
		new: `				return f.scan + 1, true, true`,
	},
	{
		name: "a shard's last chunk is as long as the others", file: "protocol/innetwork/layout.go",
		old: `c.bytes = min(l.step, l.bytes-c.offset)`,
		new: `c.bytes = l.step`,
	},

	{
		name: "a rank that has left the switch goes on with it", file: "engine/reduce.go",
		old: `return r.lane.Stop(epoch), r.conn.set(nil)`,
		new: `return r.lane.Stop(epoch), nil`,
	},
	{
		name: "what is in flight does not end with the group", file: "engine/reduce.go",
		old: `	for i, w := range r.works {
		if w != nil {`,
		new: `	for i, w := range r.works {
		if w != nil && i%2 == 1 {`,
	},
	{
		name: "a partial result is taken for the whole", file: "protocol/reducescatter/switchconn.go",
		old: `	case p.Partial:`,
		new: `	case p.Partial && p.Offset > 0:`,
	},
	{
		name: "a result is received where the input lies", file: "protocol/reducescatter/switchconn.go",
		old: `	if sameMemory(o.Recv, o.Shard(c.cfg.Rank)) {`,
		new: `	if len(o.Recv) == 0 {`,
	},
	{
		name: "a node listens to its first member alone", file: "protocol/innetwork/node/node.go",
		old: `n.first = (n.first + 1) % len(n.links)`,
		new: `n.first = 0`,
	},
	{
		name: "a node has no timers", file: "protocol/innetwork/node/node.go",
		old: `	n.stage.Expire(n.now)
`,
		new: ``,
	},
	{
		name: "an element is summed before all of it is there", file: "protocol/direct/direct.go",
		old: `			n = len(b) &^ (wire.StreamAlign - 1)
		}
	}
	for r`,
		new: `			n = len(b)
		}
	}
	for r`,
	},
	{
		name: "the padding of a shard is taken for the next header", file: "protocol/direct/direct.go",
		old: `return padded(part.To-part.From) - (part.To - part.From)`,
		new: `return 0`,
	},
	{
		name: "rank 0 announces the switch too early", file: "protocol/reducescatter/lane.go",
		old: `From: next + collective.MaxInFlight,`,
		new: `From: next,`,
	},
	{
		name: "of what a rank lacks the end is forgotten", file: "protocol/reducescatter/record.go",
		old: `	if at < e.bytes {`,
		new: `	if at < e.bytes && at == 0 {`,
	},
}
