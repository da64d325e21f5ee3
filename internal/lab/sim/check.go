package sim

import (
	"bytes"
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// buffers are what a rank's program gave an operation, and what is known of it.
type buffers struct {
	*Op
	index  int
	chunks int // K
	shards int
	own    int // index of this rank's shard, -1: none
	send   []byte
	recv   []byte
	digest uint64 // of what was put into recv, where there are no bytes
	sent   int    // chunks of the own shard that were multicast
	done   bool
	phases phases
}

// newBuffers fills what a rank sends with its pattern and what it receives with poison.
func (n *rank) newBuffers(index int, o *Op) *buffers {
	chunk := n.Core.Chunk
	b := &buffers{Op: o, index: index, chunks: max(1, (o.Bytes+chunk-1)/chunk), shards: n.Core.Size, own: n.rank}
	if o.Collective == wire.Broadcast {
		b.shards, b.own = 1, -1
		if n.rank == o.Root {
			b.own = 0
		}
	}
	if n.Digest {
		return b
	}
	b.recv = make([]byte, b.shards*o.Bytes)
	poison(b.recv)
	if b.own < 0 {
		return b
	}
	b.send = b.recv[b.own*o.Bytes : (b.own+1)*o.Bytes]
	if o.Collective != wire.Broadcast && !o.InPlace {
		b.send = make([]byte, o.Bytes)
	}
	fill(b.send, n.rank, n.pattern(index))
	return b
}

// pattern numbers an operation over all lives, so that no two look alike.
func (j *Job) pattern(index int) int { return j.life*len(j.Ops) + index }

const poisoned = 0xee

// fill writes the pattern of a rank's shard in an operation. It has no byte of poison.
func fill(b []byte, rank, pattern int) {
	x := uint32(rank)*0x9e3779b1 + uint32(pattern)*0x85ebca6b //nolint:gosec // a hash
	for i := range b {
		b[i] = byte((uint32(i)*0x9e3779b1 + x) >> 24) //nolint:gosec // a hash
		if b[i] == poisoned {
			b[i] = 0
		}
	}
}

// poison is what a buffer holds that nobody has written to, or that its owner
// has taken back.
func poison(b []byte) {
	for i := range b {
		b[i] = poisoned
	}
}

// token stands for the bytes of a chunk of a root's shard.
func (j *Job) token(root, index, psn int) uint64 {
	return mix(mix(uint64(root)<<32|uint64(psn), uint64(j.pattern(index))), j.Seed) //nolint:gosec // a hash
}

// transmit multicasts the first chunks of a run.
func (n *rank) transmit(run *multicast.Run, count int) {
	b := n.operation(run.Head.Seq)
	if b.done || b.own < 0 || int(run.Head.PSN) != b.sent || b.sent+run.Count > b.chunks || int(run.Head.Root) != n.rank {
		n.fail("rank %d: is told to send %d chunks as %+v, but has sent %d of %d", n.rank, run.Count, run.Head, b.sent, b.chunks)
		return
	}
	shard := b.send
	if run.Head.Arena != multicast.NotEager {
		at := int(run.Head.Arena) + b.own*b.Bytes
		shard = n.arena[at : at+b.Bytes]
		if b.sent == 0 {
			copy(shard, b.send)
		}
	}
	for range count {
		from := b.sent * n.Core.Chunk
		to := min(from+n.Core.Chunk, b.Bytes)
		d := &Datagram{head: run.Head, size: to - from}
		d.head.Job, d.head.PSN = n.number(), uint32(b.sent) //nolint:gosec // small
		if n.Digest {
			d.token = n.token(n.rank, b.index, b.sent)
		} else {
			d.payload = bytes.Clone(shard[from:to])
		}
		n.multicast(d)
		b.sent++
	}
}

// multicast sends a chunk to all other ranks.
func (n *rank) multicast(d *Datagram) {
	n.result.Chunks++
	if n.held != nil {
		for _, m := range n.ranks {
			if m != n {
				m.held[n.rank] = append(m.held[n.rank], d) // it is published at once
				m.bell(n.Net.Latency)
			}
		}
		return
	}
	p := n.net.Packet()
	p.From, p.To, p.Group, p.Body = int32(n.rank), network.Multicast, int32(d.head.Subgroup), d //nolint:gosec // ranks
	p.Bytes, p.Count = int32(wire.DataSize+d.size), n.packets(d.size)                           //nolint:gosec // a chunk
	n.net.Send(p)
}

// put writes a chunk where the core says, after a check that it may go there.
func (n *rank) put(h *wire.Data, pl multicast.Place, size int, payload []byte, token uint64) bool {
	if pl.Arena {
		if pl.Offset < 0 || pl.Offset+size > len(n.arena) {
			n.fail("rank %d: %+v is placed at %d, outside the arena", n.rank, *h, pl.Offset)
			return false
		}
		copy(n.arena[pl.Offset:], payload)
		return true
	}
	b := n.operation(pl.Seq)
	if b == nil || b.done {
		n.fail("rank %d: %+v is placed in a buffer that is not the protocol's", n.rank, *h)
		return false
	}
	s := 0
	if b.Collective != wire.Broadcast {
		s = int(h.Root)
	}
	twice := !n.Digest && size > 0 && b.recv[pl.Offset] != poisoned
	if pl.Offset != s*b.Bytes+int(h.PSN)*n.Core.Chunk || pl.Offset+size > (s+1)*b.Bytes || twice {
		n.fail("rank %d: %+v of %d bytes is placed at %d; something is there already: %t", n.rank, *h, size, pl.Offset, twice)
		return false
	}
	n.note(b, Receive)
	if n.Digest {
		b.digest += mix(token, uint64(pl.Offset)) //nolint:gosec // a hash
	} else {
		copy(b.recv[pl.Offset:], payload)
	}
	return true
}

// repair returns what the right neighbour wants of a chunk. A digest does not
// tell one chunk from another, so there it is taken on trust that this rank has it.
func (n *rank) repair(r *multicast.Repair) ([]byte, uint64) {
	size := int(r.Message.Bytes) //nolint:gosec // a chunk
	if r.Place.Arena {
		return bytes.Clone(n.arena[r.Place.Offset:][:size]), 0
	}
	b := n.operation(r.Place.Seq)
	if b.done {
		n.fail("rank %d: repairs from the buffers of operation %d, which are released", n.rank, r.Place.Seq)
	}
	s := int(r.Message.Root)
	if b.Collective == wire.Broadcast {
		s = 0
	}
	if at := s*b.Bytes + int(r.Message.PSN)*n.Core.Chunk; r.Place.Offset != at {
		n.fail("rank %d: repairs %+v from %d, not %d", n.rank, r.Message, r.Place.Offset, at)
		return make([]byte, size), 0
	}
	switch {
	case n.Digest:
		return nil, n.token(int(r.Message.Root), b.index, int(r.Message.PSN))
	case int(r.Message.Root) == n.rank:
		return bytes.Clone(b.send[int(r.Message.PSN)*n.Core.Chunk:][:size]), 0
	}
	return bytes.Clone(b.recv[r.Place.Offset:][:size]), 0
}

// complete checks a finished operation and takes its buffers back.
func (n *rank) complete(d *multicast.Completion) {
	b := n.operation(d.Seq)
	if b == nil || b.done {
		n.fail("rank %d: operation %d is done twice, or before it was posted", n.rank, d.Seq)
		return
	}
	b.done = true
	n.open--
	n.moved()
	switch {
	case d.Err != nil:
		if n.failed == nil || !errors.Is(d.Err, n.failed) {
			n.fail("rank %d: operation %d ends with %v", n.rank, d.Seq, d.Err)
		}
	default:
		if d.Arena != multicast.NotEager {
			copy(b.recv, n.arena[d.Arena:])
		} else if b.own >= 0 && !n.Digest {
			copy(b.recv[b.own*b.Bytes:], b.send)
		}
		n.verify(b)
		n.markDone(b)
		n.result.Ops++
		n.result.Spans[b.index].To = n.net.Now()
	}
	poison(b.recv)
	poison(b.send)
}

// verify compares a result with the patterns of its roots.
func (n *rank) verify(b *buffers) {
	if b.own >= 0 && b.sent != b.chunks && n.Core.Size > 1 {
		n.fail("rank %d: operation %d is done with %d of %d chunks sent", n.rank, b.index, b.sent, b.chunks)
	}
	if (b.Collective != wire.Broadcast || b.Sync && !n.Core.Lossless) && n.posted[b.index] != n.Core.Size {
		n.fail("rank %d: operation %d is done before rank(s) have begun it", n.rank, b.index)
	}
	n.result.Bytes += int64(b.shards) * int64(b.Bytes)
	if n.Digest {
		if want := n.wholeDigest(b) - n.shardDigest(b, b.own); b.digest != want {
			n.fail("rank %d: operation %d (%v): digest %016x, not %016x", n.rank, b.index, b.Op.Op, b.digest, want)
		}
		return
	}
	want := make([]byte, b.Bytes)
	for s := range b.shards {
		root := s
		if b.Collective == wire.Broadcast {
			root = b.Root
		}
		fill(want, root, n.pattern(b.index))
		if got := b.recv[s*b.Bytes:][:b.Bytes]; !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			n.fail("rank %d: operation %d (%v): wrong byte at %d of the shard of rank %d: %#x, not %#x",
				n.rank, b.index, b.Op.Op, i, root, got[i], want[i])
		}
	}
}

// wholeDigest returns the digest of all shards where they belong.
func (j *Job) wholeDigest(b *buffers) uint64 {
	if j.whole[b.index] == 0 {
		for s := range b.shards {
			j.whole[b.index] += j.shardDigest(b, s)
		}
	}
	return j.whole[b.index]
}

// shardDigest returns the digest of one shard; of none, 0.
func (j *Job) shardDigest(b *buffers, s int) uint64 {
	if s < 0 {
		return 0
	}
	root := s
	if b.Collective == wire.Broadcast {
		root = b.Root
	}
	var d uint64
	for psn := range b.chunks {
		d += mix(j.token(root, b.index, psn), uint64(s*b.Bytes+psn*j.Core.Chunk)) //nolint:gosec // a hash
	}
	return d
}

// checkExpected bounds how many chunks of a guess are looked at after each event.
const checkExpected = 32

// check verifies what must hold after every event.
func (n *rank) check() {
	if in := n.comm.InFlight(); in != n.open || in > multicast.MaxInFlight {
		n.fail("rank %d: %d operations in flight, not %d", n.rank, in, n.open)
	}
	if n.Digest {
		return
	}
	e, ok := n.comm.Expect()
	if !ok {
		return
	}
	b := n.operation(e.Seq)
	if b == nil || b.done {
		n.fail("rank %d: expects %+v of an operation that is not in flight", n.rank, e)
		return
	}
	s := 0
	if b.Collective != wire.Broadcast {
		s = e.Root
	}
	if e.Count < 1 || e.PSN+e.Count > b.chunks || e.Offset != s*b.Bytes+e.PSN*n.Core.Chunk || e.Offset+e.Bytes > (s+1)*b.Bytes {
		n.fail("rank %d: expects %+v, outside its shard", n.rank, e)
		return
	}
	for i := range min(e.Count, checkExpected) {
		if at := e.Offset + i*n.Core.Chunk; at < e.Offset+e.Bytes && b.recv[at] != poisoned {
			n.fail("rank %d: expects %+v, of which chunk %d has arrived", n.rank, e, e.PSN+i)
		}
	}
}

// account adds what a rank's core has counted.
func (n *rank) account() {
	st, sum := n.comm.Stats(), &n.result.Stats
	sum.Done += st.Done
	sum.Lost += st.Lost
	sum.Repaired += st.Repaired
	sum.Dropped += st.Dropped
	sum.Barriers += st.Barriers
	sum.Mismatched += st.Mismatched
}

// atEnd verifies what must hold when nothing is left to happen.
func (j *Job) atEnd() {
	for _, n := range j.ranks {
		n.account()
		if n.dead {
			continue
		}
		if n.failed == nil && len(n.ops) < len(j.Ops) {
			j.fail("rank %d has stopped after %d operations", n.rank, len(n.ops))
		}
		for _, b := range n.ops {
			if !b.done {
				j.fail("rank %d: operation %d (%v) never ends", n.rank, b.index, b.Op.Op)
			}
		}
	}
	if j.err == nil && len(j.Crashes) == 0 && !j.broken {
		j.checkTraffic()
	}
}
