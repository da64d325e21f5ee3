package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// Run is a stretch of chunks of the own shard that may be multicast now.
type Run struct {
	Head   wire.Data // of the first chunk, but for Job
	Count  int
	Second bool // an eager one's shard lies in the second arena
	Relay  bool // they are not multicast: NextRelay returns them once they are Sent
	Probe  bool // the first one is to be multicast all the same, if there is room: see Comm.Probed
}

// sender is how far this rank has multicast its shard.
type sender struct {
	next     int  // first chunk not multicast, at most K; K where the shard is another rank's
	leads    bool // it is the first root of its chain
	relay    bool // what NextRun returned last is relayed
	probe    bool // its first chunk was multicast, too
	relayed  bool // some of the shard was relayed, perhaps beyond credit
	turn     bool // the root before this rank in its chain has sent everything, or nobody takes turns
	progress progress
}

// reset begins an operation that was posted.
func (s *sender) reset(l *layout) {
	*s = sender{leads: l.leads(), turn: l.mode.kind != large}
	if l.own < 0 || l.topo.Size == 1 { // nothing to send, or nobody to send it to
		s.next = l.chunks
	}
}

// done reports whether the whole shard has been multicast.
func (s *sender) done(l *layout) bool { return s.next == l.chunks }

// blockChunks is how many chunks in a row go to one subgroup: a word of the bitmap, which a receive
// worker need not share.
const blockChunks = 64

// run describes up to n chunks that follow, all of one of g subgroups: contiguous blocks of a shard
// go to the multicast groups (Khalilov et al., SC24, IV-C) by turns, so that all of a receiver's
// workers have something to do while one root sends.
func (s *sender) run(l *layout, g, n int) Run {
	block := max(1, min(blockChunks, l.chunks/g))
	sub := s.next / block % g
	end := min(l.chunks, (s.next/block+1)*block)
	return Run{
		Head: wire.Data{
			Collective: l.coll, Subgroup: uint8(sub), Root: uint16(l.topo.Rank), Call: l.digest,
			Seq: l.seq, PSN: uint32(s.next), Bytes: uint32(l.bytes), Arena: l.mode.arena,
		},
		Count: min(n, end-s.next), Second: l.mode.second,
	}
}

// pass hands the right to multicast to the next root of the chain.
func (s *sender) pass(l *layout, out *outbox) {
	if next := l.successor(); next >= 0 {
		out.send(l.rootOf(next), l.control(wire.Activate))
	}
}
