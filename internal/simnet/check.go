package simnet

import (
	"bytes"
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// buffers are what a rank's program gave an operation, and what is known of it.
type buffers struct {
	*Op
	index   int
	chunks  int // K
	shards  int
	own     int // index of this rank's shard, -1: none
	send    []byte
	recv    []byte
	arrived []bool // chunks placed in recv; own ones count as arrived
	sent    int    // chunks of the own shard that were multicast
	done    bool
}

// newBuffers fills what a rank sends with its pattern and what it receives with poison.
func newBuffers(c *core.Config, rank, index int, o *Op) *buffers {
	b := &buffers{Op: o, index: index, chunks: max(1, (o.Bytes+c.Chunk-1)/c.Chunk), shards: c.Size, own: rank}
	if o.Collective == wire.Broadcast {
		b.shards, b.own = 1, -1
		if rank == o.Root {
			b.own = 0
		}
	}
	b.recv = make([]byte, b.shards*o.Bytes)
	poison(b.recv)
	b.arrived = make([]bool, b.shards*b.chunks)
	if b.own < 0 {
		return b
	}
	b.send = b.recv[b.own*o.Bytes : (b.own+1)*o.Bytes]
	if o.Collective != wire.Broadcast && !o.InPlace {
		b.send = make([]byte, o.Bytes)
	}
	fill(b.send, rank, index)
	for i := range b.chunks {
		b.arrived[b.own*b.chunks+i] = true
	}
	return b
}

// fill writes the pattern of a rank's shard in an operation.
func fill(b []byte, rank, index int) {
	x := uint32(rank)*0x9e3779b1 + uint32(index)*0x85ebca6b //nolint:gosec // a hash
	for i := range b {
		b[i] = byte((uint32(i)*0x9e3779b1 + x) >> 24) //nolint:gosec // a hash
	}
}

// poison is what a buffer holds that nobody has written to, or that its owner
// has taken back.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xee
	}
}

// transmit multicasts the first chunks of a run.
func (n *node) transmit(run *core.Run, count int) {
	b := n.ops[run.Head.Seq]
	if b.done || b.own < 0 || int(run.Head.PSN) != b.sent || b.sent+run.Count > b.chunks || int(run.Head.Root) != n.rank {
		n.fail("rank %d: is told to send %d chunks as %+v, but has sent %d of %d", n.rank, run.Count, run.Head, b.sent, b.chunks)
		return
	}
	shard := b.send
	if run.Head.Arena != core.NotEager {
		at := int(run.Head.Arena) + b.own*b.Bytes
		shard = n.arena[at : at+b.Bytes]
		if b.sent == 0 {
			copy(shard, b.send)
		}
	}
	for range count {
		from := b.sent * n.Core.Chunk
		to := min(from+n.Core.Chunk, b.Bytes)
		h := run.Head
		h.Job, h.PSN = Job, uint32(b.sent) //nolint:gosec // small
		n.multicast(&packet{from: n.rank, data: h, payload: bytes.Clone(shard[from:to])})
		b.sent++
	}
}

// place returns where a chunk goes, after a check that it may.
func (n *node) place(h *wire.Data, pl core.Place, size int) []byte {
	if pl.Arena {
		if pl.Offset < 0 || pl.Offset+size > len(n.arena) {
			n.fail("rank %d: %+v is placed at %d, outside the arena", n.rank, *h, pl.Offset)
			return nil
		}
		return n.arena[pl.Offset:][:size]
	}
	if int(pl.Seq) >= len(n.ops) || n.ops[pl.Seq].done {
		n.fail("rank %d: %+v is placed in a buffer that is not the protocol's", n.rank, *h)
		return nil
	}
	b := n.ops[pl.Seq]
	s := 0
	if b.Collective != wire.Broadcast {
		s = int(h.Root)
	}
	bit := s*b.chunks + int(h.PSN)
	if pl.Offset != s*b.Bytes+int(h.PSN)*n.Core.Chunk || pl.Offset+size > (s+1)*b.Bytes || b.arrived[bit] {
		n.fail("rank %d: %+v of %d bytes is placed at %d; arrived before: %t", n.rank, *h, size, pl.Offset, b.arrived[bit])
		return nil
	}
	b.arrived[bit] = true
	return b.recv[pl.Offset:][:size]
}

// repair returns a copy of the bytes of a chunk that the right neighbour wants.
func (n *node) repair(r *core.Repair) []byte {
	size := int(r.Message.Bytes) //nolint:gosec // a chunk
	if r.Place.Arena {
		return bytes.Clone(n.arena[r.Place.Offset:][:size])
	}
	b := n.ops[r.Place.Seq]
	if b.done {
		n.fail("rank %d: repairs from the buffers of operation %d, which are released", n.rank, r.Place.Seq)
	}
	if int(r.Message.Root) == n.rank {
		return bytes.Clone(b.send[int(r.Message.PSN)*n.Core.Chunk:][:size])
	}
	return bytes.Clone(b.recv[r.Place.Offset:][:size])
}

// complete checks a finished operation byte by byte and takes its buffers back.
func (n *node) complete(d *core.Completion) {
	if int(d.Seq) >= len(n.ops) || n.ops[d.Seq].done {
		n.fail("rank %d: operation %d is done twice, or before it was posted", n.rank, d.Seq)
		return
	}
	b := n.ops[d.Seq]
	b.done = true
	n.open--
	switch {
	case d.Err != nil:
		if n.failed == nil || !errors.Is(d.Err, n.failed) {
			n.fail("rank %d: operation %d ends with %v", n.rank, d.Seq, d.Err)
		}
	default:
		if d.Arena != core.NotEager {
			copy(b.recv, n.arena[d.Arena:])
		} else if b.own >= 0 {
			copy(b.recv[b.own*b.Bytes:], b.send)
		}
		n.verify(b)
		n.result.Ops++
	}
	poison(b.recv)
	poison(b.send)
}

// verify compares a result with the patterns of its roots.
func (n *node) verify(b *buffers) {
	if b.own >= 0 && b.sent != b.chunks && n.Core.Size > 1 {
		n.fail("rank %d: operation %d is done with %d of %d chunks sent", n.rank, b.index, b.sent, b.chunks)
	}
	if b.Collective != wire.Broadcast && n.posted[b.index] != n.Core.Size {
		n.fail("rank %d: operation %d is done before rank(s) have begun it", n.rank, b.index)
	}
	want := make([]byte, b.Bytes)
	for s := range b.shards {
		root := s
		if b.Collective == wire.Broadcast {
			root = b.Root
		}
		fill(want, root, b.index)
		if got := b.recv[s*b.Bytes:][:b.Bytes]; !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			n.fail("rank %d: operation %d (%v): wrong byte at %d of the shard of rank %d: %#x, not %#x",
				n.rank, b.index, b.Op.Op, i, root, got[i], want[i])
		}
		n.result.Bytes += b.Bytes
	}
}

// checkExpected bounds how many chunks of a guess are looked at after each event.
const checkExpected = 32

// check verifies what must hold after every event.
func (n *node) check() {
	if in := n.comm.InFlight(); in != n.open || in > core.MaxInFlight {
		n.fail("rank %d: %d operations in flight, not %d", n.rank, in, n.open)
	}
	e, ok := n.comm.Expect()
	if !ok {
		return
	}
	if int(e.Seq) >= len(n.ops) || n.ops[e.Seq].done {
		n.fail("rank %d: expects %+v of an operation that is not in flight", n.rank, e)
		return
	}
	b := n.ops[e.Seq]
	s := 0
	if b.Collective != wire.Broadcast {
		s = e.Root
	}
	if e.Count < 1 || e.PSN+e.Count > b.chunks || e.Offset != s*b.Bytes+e.PSN*n.Core.Chunk || e.Offset+e.Bytes > (s+1)*b.Bytes {
		n.fail("rank %d: expects %+v, outside its shard", n.rank, e)
		return
	}
	for i := range min(e.Count, checkExpected) {
		if b.arrived[s*b.chunks+e.PSN+i] {
			n.fail("rank %d: expects %+v, of which chunk %d has arrived", n.rank, e, e.PSN+i)
		}
	}
}

// atEnd verifies what must hold when nothing is left to happen.
func (s *sim) atEnd() {
	for _, n := range s.nodes {
		st := n.comm.Stats()
		sum := &s.result.Stats
		sum.Done += st.Done
		sum.Lost += st.Lost
		sum.Repaired += st.Repaired
		sum.Dropped += st.Dropped
		sum.Barriers += st.Barriers
		if n.dead {
			continue
		}
		if n.failed == nil && len(n.ops) < len(s.Ops) {
			s.fail("rank %d has stopped after %d operations", n.rank, len(n.ops))
		}
		for _, b := range n.ops {
			if !b.done {
				s.fail("rank %d: operation %d (%v) never ends", n.rank, b.index, b.Op.Op)
			}
		}
	}
	if s.err == nil {
		s.checkTraffic()
	}
}

// checkTraffic verifies how many messages and chunks the run took.
func (s *sim) checkTraffic() {
	r := &s.result
	if len(s.Crashes) > 0 {
		return
	}
	chunks := 0
	for i := range s.Ops {
		b := s.nodes[0].ops[i]
		chunks += b.shards * b.chunks
	}
	if s.Core.Size > 1 && r.Chunks != chunks {
		s.fail("%d chunks were multicast; the operations have %d", r.Chunks, chunks)
	}
	if s.Calm && (r.Stats.Lost > 0 || r.Stats.Dropped > 0 || r.Control[wire.Fetch] > 0 || r.Control[wire.Repair] > 0) {
		s.fail("nothing was lost, but: %+v, %d fetches", r.Stats, r.Control[wire.Fetch])
	}
}
