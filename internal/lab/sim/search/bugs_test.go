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
		old: `	for _, limit := range c.below(p, s) {
		low = min(low, limit)
	}
`,
		new: ``,
	},
	{
		name: "a stale datagram is accepted", file: "protocol/multicast/receive.go",
		old: `if bit := s*p.shape.chunks + int(h.PSN); p.have.Has(bit) {`,
		new: `if bit := s*p.shape.chunks + int(h.PSN); p.have.Has(bit) && p.state != retained {`,
	},

	{
		name: "the arena is used again without a barrier", file: "protocol/multicast/comm.go",
		old: `		r.barrier = true
		*e = epoch{opener: seq}`,
		new: `		if r.barrier = sync || !r.eager; r.barrier {
			e.opener = seq
		}
		e.bytes, e.chunks, e.ops = 0, 0, 0`,
	},
	{
		name: "a repair is taken from a buffer that was given back", file: "protocol/multicast/repair.go",
		old: `	p.rightDone = true
	c.dropWishes(p)
`,
		new: `	p.rightDone = true
`,
	},
	{
		name: "a datagram alone ends the communicator", file: "protocol/multicast/compare.go",
		old: `if h.IsRepair() || c.cfg.Lossless {`,
		new: `if true {`,
	},
	{
		name: "a stranger's chunk may lie anywhere in the arena", file: "protocol/multicast/receive.go",
		old: `return entered && int(arena) >= c.epoch.bytes`,
		new: `return entered || true`,
	},
	{
		name: "what a stranger has begun is not forgotten", file: "protocol/multicast/op.go",
		old: `		p.blank(seq)
		p.calls, p.disputed = calls, true
`,
		new: `		p.shape = shape{}
		p.calls, p.disputed = calls, true
`,
	},
	{
		name: "nobody asks after a silence", file: "protocol/multicast/repair.go",
		old: `				c.cutOff(p)
`,
		new: ``,
	},
	{
		name: "numbers are compared as they are", file: "protocol/multicast/op.go",
		old: `int32(a-b) < 0 }`,
		new: `a < b }`,
	},
	{
		name: "a chunk number is off by one", file: "protocol/multicast/receive.go",
		old: `s, psn := p.shape.shard(int(h.Root)), int(h.PSN)`,
		new: `s, psn := p.shape.shard(int(h.Root)), min(int(h.PSN)+1, p.shape.chunks-1)`,
	},
	{
		name: "the first chunk of a shard is never sent", file: "protocol/multicast/send.go",
		old: `PSN: uint32(p.next), Bytes:`,
		new: `PSN: uint32(max(p.next, 1)), Bytes:`,
	},
	{
		name: "a chunk lands one too far", file: "protocol/multicast/shape.go",
		old: `return shard*s.bytes + psn*chunk }`,
		new: `return shard*s.bytes + min(psn+psn/5, s.chunks-1)*chunk }`,
	},
	{
		name: "the final handshake is skipped", file: "protocol/multicast/op.go",
		old: `return p.rightDone
`,
		new: `return true
`,
	},
	{
		name: "a duplicate counts", file: "protocol/multicast/receive.go",
		old: `if bit := s*p.shape.chunks + int(h.PSN); p.have.Has(bit) {`,
		new: `if bit := s*p.shape.chunks + int(h.PSN); p.have.Has(bit) && h.IsRepair() {`,
	},

	{
		name: "a round of the barrier is skipped", file: "protocol/multicast/barrier.go",
		old: `p.heard == 1<<rounds-1`,
		new: `p.heard|1<<rounds>>1 == 1<<rounds-1`,
	},
	{
		name: "a barrier is entered before older results are out of the arena", file: "protocol/multicast/op.go",
		old: `!p.entered && !pending && late < 2`,
		new: `!p.entered && late < 2`,
	},
	{
		name: "a root sends before its turn", file: "protocol/multicast/send.go",
		old: `p.turn = received && c.isHead(p)`,
		new: `p.turn = received`,
	},
	{
		name: "the right to send is passed on too early", file: "protocol/multicast/send.go",
		old: `	if !p.sent() {
		return
	}`,
		new: `	if p.next < p.shape.chunks/2 {
		return
	}`,
	},
	{
		name: "the right to send is not passed on", file: "protocol/multicast/send.go",
		old: `next < c.cfg.Size && c.chains.Of(next)`,
		new: `next < c.cfg.Size-1 && c.chains.Of(next)`,
	},
	{
		name: "a credit is larger than the window", file: "protocol/multicast/credit.go",
		old: `p.taken[chain]+p.window-index*p.shape.chunks`,
		new: `p.taken[chain]+2*p.window-index*p.shape.chunks`,
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
		name: "silence goes unnoticed for seconds", file: "protocol/multicast/repair.go",
		old: `p.cutoff = c.now + min(`,
		new: `p.cutoff = c.now + 5*time.Second + min(`,
	},
	{
		name: "the last credit is held back", file: "protocol/multicast/credit.go",
		old: `low/p.step == p.reported[s]/p.step && int(low) < p.most() {`,
		new: `low/p.step == p.reported[s]/p.step {`,
	},

	{
		name: "a repaired chunk is the one before", file: "protocol/multicast/repair.go",
		old: `Place: Place{Seq: p.seq, Offset: p.shape.offset(s, psn, c.cfg.Chunk), Arena: p.eager},`,
		new: `Place: Place{Seq: p.seq, Offset: p.shape.offset(s, max(psn-1, 0), c.cfg.Chunk), Arena: p.eager},`,
	},

	{
		name: "the cutoff is never armed", file: "protocol/multicast/repair.go",
		old: `p.full() || !p.open || before(c.opened, p.opener) {`,
		new: `p.full() || p.open || before(c.opened, p.opener) {`,
	},
	{
		name: "the cutoff is not armed again", file: "protocol/multicast/repair.go",
		old: `				p.tries++
			}
			c.arm(p)`,
		new: `				p.tries++
			}
			p.cutoff = 0`,
	},
	{
		name: "the arena is used again too early", file: "protocol/multicast/comm.go",
		old: `e.bytes += need`,
		new: `e.bytes += need / 2`,
	},

	{
		name: "an eager operation is forgotten before all have it", file: "protocol/multicast/op.go",
		old: `if p.eager && !before(p.seq, c.opened) ||`,
		new: `if p.eager && !before(p.seq, c.opened+1) ||`,
	},

	{
		name: "all but a chunk of the buffer is enough", file: "protocol/multicast/op.go",
		old: `return p.have.Full() }`,
		new: `return p.have.Count() >= p.have.Len()-1 }`,
	},
	{
		name: "a lossless chunk is taken before its operation is posted", file: "protocol/multicast/receive.go",
		old: `return c.err == nil && !before(h.Seq, c.posted)`,
		new: `return c.err == nil && !before(h.Seq, c.posted+1)`,
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
		old: `return sl.sent && !before(s.members[s.cfg.Owner[sl.head.Owner]].have, n+1)`,
		new: `return sl.sent && !before(s.members[s.cfg.Owner[sl.head.Owner]].have, n)`,
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
		name: "a parent's base is taken although an owner below lacks a result", file: "protocol/innetwork/uplink.go",
		old: `			if !s.acknowledged(u.have, sl) {
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
		old: `return r.lane.Stop(epoch), r.uplink.set(nil)`,
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
		name: "a partial result is taken for the whole", file: "protocol/reducescatter/uplink.go",
		old: `	case p.Partial:`,
		new: `	case p.Partial && p.Offset > 0:`,
	},
	{
		name: "a result is received where the input lies", file: "protocol/reducescatter/uplink.go",
		old: `	if sameMemory(o.Recv, o.Shard(u.cfg.Rank)) {`,
		new: `	if len(o.Recv) == 0 {`,
	},
	{
		name: "a node listens to its first member alone", file: "protocol/innetwork/node/node.go",
		old: `n.first = (n.first + 1) % len(n.links)`,
		new: `n.first = 0`,
	},
	{
		name: "a node has no timers", file: "protocol/innetwork/node/node.go",
		old: `	n.stage.Expire(now)
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
		old: `From: next + MaxInFlight,`,
		new: `From: next,`,
	},
	{
		name: "who has not posted an operation is not waited for", file: "protocol/reducescatter/resume.go",
		old: `			whole = false // it must still come to contribute
`,
		new: ``,
	},
	{
		name: "of what a rank lacks the end is forgotten", file: "protocol/reducescatter/record.go",
		old: `	if at < e.bytes {`,
		new: `	if at < e.bytes && at == 0 {`,
	},
}
