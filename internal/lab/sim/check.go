package sim

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// buffers are the memory that a rank's program gave an operation, and the state of the operation
// for the checks.
type buffers struct {
	*Op
	index  int
	chunks int // K
	shards int
	placed multicast.Op // Op, and where this rank has its shards
	own    int          // index of this rank's shard, -1: none
	send   []byte
	recv   []byte
	digest uint64 // of what was put into recv, where there are no bytes
	sent   int    // chunks of the own shard that were multicast
	done   bool
	phases phases
}

// newBuffers fills a rank's input with its pattern and its output with poison.
func (n *rank) newBuffers(index int, o *Op) *buffers {
	chunk := n.Core.Chunk
	b := &buffers{Op: o, index: index, chunks: max(1, (o.Bytes+chunk-1)/chunk), shards: n.Core.Size, own: n.rank}
	if o.Collective == wire.Broadcast {
		b.shards, b.own = 1, -1
		if n.rank == o.Root {
			b.own = 0
		}
	}
	room := b.place(n.rank)
	if n.Digest {
		b.recv = n.untouched[:room]
	} else {
		b.recv = make([]byte, room)
		poison(b.recv)
	}
	if b.own < 0 {
		return b
	}
	b.send = b.recv[b.start(b.own):][:o.Bytes]
	if n.Digest {
		return b
	}
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
	x := uint32(rank)*0x9e3779b1 + uint32(pattern)*0x85ebca6b
	for i := range b {
		b[i] = byte((uint32(i)*0x9e3779b1 + x) >> 24)
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
	return mix(mix(uint64(root)<<32|uint64(psn), uint64(j.pattern(index))), j.Seed)
}

// put writes a chunk where the engine says, after a check that it may go there. In the arena of
// eager operations the bytes of the result tell.
func (n *rank) put(h *wire.Data, dst, payload []byte, token uint64) bool {
	b := n.operation(h.Seq)
	if b == nil {
		copy(dst, payload) // others are faster
		return true
	}
	s := b.shard(h.Root)
	want := b.start(s) + int(h.PSN)*n.Core.Chunk
	at, in := b.offset(dst)
	if len(dst) == 0 {
		at, in = want, true
	}
	if !in && !n.Digest {
		copy(dst, payload)
		return true
	}
	twice := !n.Digest && len(dst) > 0 && b.recv[at] != poisoned
	if b.done || at != want || at+len(dst) > b.start(s)+b.Bytes || twice {
		n.fail("rank %d: %+v of %d bytes is placed at %d; something is there already: %t", n.rank, *h, len(dst), at, twice)
		return false
	}
	n.note(b, Receive)
	if n.Digest {
		b.digest += mix(token, uint64(at))
	} else {
		copy(dst, payload)
	}
	return true
}

// offset returns where a part of the receive buffer lies in it, and whether it does.
func (b *buffers) offset(part []byte) (at int, in bool) {
	at = int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(b.recv))))
	return at, at >= 0 && at+len(part) <= len(b.recv)
}

// verify compares a result with the patterns of its roots.
func (n *rank) verify(b *buffers) {
	if b.own >= 0 && b.sent != b.chunks && n.Core.Size > 1 && !n.relays() {
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
		got := b.recv[b.start(s):][:b.Bytes]
		if !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			n.fail("rank %d: operation %d (%v): wrong byte at %d of the shard of rank %d: %#x, not %#x",
				n.rank, b.index, b.Op.Op, i, root, got[i], want[i])
		}
		poison(got)
	}
	if i := slices.IndexFunc(b.recv, func(x byte) bool { return x != poisoned }); i >= 0 {
		n.fail("rank %d: operation %d (%v): byte %d, of no shard, was written to", n.rank, b.index, b.Op.Op, i)
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
		d += mix(j.token(root, b.index, psn), uint64(b.start(s)+psn*j.Core.Chunk))
	}
	return d
}

// checkExpected bounds how many chunks of a guess are looked at after each event.
const checkExpected = 32

// check verifies what must hold after every event.
func (n *rank) check() {
	if in := n.engine.InFlight(); in != n.open {
		n.fail("rank %d: %d operations in flight, not %d", n.rank, in, n.open)
	}
	if n.Digest {
		return
	}
	e := n.engine.Expect(nil)
	if len(e.Dst) == 0 {
		return
	}
	b := n.operation(e.Seq)
	if b == nil || b.done {
		n.fail("rank %d: expects %+v of an operation that is not in flight", n.rank, e)
		return
	}
	s, psn := b.shard(e.Root), int(e.PSN)
	at, in := b.offset(e.Dst)
	end := at + len(e.Dst)
	if !in || at != b.start(s)+psn*n.Core.Chunk || end > b.start(s)+b.Bytes {
		n.fail("rank %d: expects %+v, outside its shard", n.rank, e)
		return
	}
	for ; at < min(end, (psn+checkExpected)*n.Core.Chunk+b.start(s)); at += n.Core.Chunk {
		if b.recv[at] != poisoned {
			n.fail("rank %d: expects %+v, of which the chunk at %d has arrived", n.rank, e, at)
		}
	}
}

// account adds what a rank's engine has counted.
func (n *rank) account() {
	st, _ := n.engine.Stats()
	sum := &n.result.Stats
	sum.Done += st.Done
	sum.Lost += st.Lost
	sum.Repaired += st.Repaired
	sum.Dropped += st.Dropped
	sum.Barriers += st.Barriers
	sum.Mismatched += st.Mismatched
	sum.Relayed += st.Relayed
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
