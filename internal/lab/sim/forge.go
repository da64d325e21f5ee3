package sim

import (
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// What strangers send must change nothing, however well it is formed, but for what the protocol
// cannot see: a chunk of the right operation, of the right size, that comes before the true one, but
// not before any root may send it (barred).

// randomStrangers draws whether there are some.
func randomStrangers(r *rand.Rand, s *Scenario) {
	if r.IntN(6) == 0 {
		s.Forged = pick(r, 0.01, 0.2, 1)
	}
}

// forge offers the engine a datagram that no rank has sent.
func (f *rankFabric) forge(s fabric.Sink) {
	n := f.n
	r := n.forger
	h := wire.Data{
		Job: n.number(), Collective: wire.Collective(1 + r.IntN(3)), Root: uint16(r.IntN(n.Core.Size)),
		Seq: n.Core.First + uint32(len(n.ops)) + uint32(r.IntN(120)) - 40, PSN: uint32(r.IntN(3)),
		Bytes: uint32(r.IntN(4*n.Core.Chunk + 1)), Arena: multicast.NotEager,
	}
	if n.Core.Arena > 0 && r.IntN(4) > 0 {
		h.Arena = uint32(r.IntN(n.Core.Arena+64)) / 64 * 64
	}
	if i := int(h.Seq - n.Core.First); i < len(n.Ops) {
		o := &n.Ops[i]
		if n.barred(i) {
			f.offer(s, n.likeTrue(h, o))
		}
		if h.Collective == o.Collective && int(h.Bytes) == o.Bytes &&
			(h.Collective != wire.Broadcast || int(h.Root) == o.Root) {
			return // it could be a true one
		}
	}
	f.offer(s, h)
}

// offer offers the engine a datagram that must change nothing.
func (f *rankFabric) offer(s fabric.Sink, h wire.Data) {
	n := f.n
	size := max(0, min(n.Core.Chunk, int(h.Bytes)-int(h.PSN)*n.Core.Chunk))
	dst, verdict, _ := s.Accept(&h, size)
	if verdict != fabric.Take {
		return
	}
	for _, b := range n.ops {
		if _, in := b.offset(dst); in && size > 0 && !b.done {
			n.fail("rank %d: a stranger's %+v is placed in a buffer", n.rank, h)
			return
		}
	}
	poison(dst)
	s.Received(&h)
}

// likeTrue returns the datagram as one of an operation's own.
func (n *rank) likeTrue(h wire.Data, o *Op) wire.Data {
	h.Collective, h.Bytes = o.Collective, uint32(o.Bytes)
	if o.Collective == wire.Broadcast {
		h.Root = uint16(o.Root)
	}
	h.PSN %= uint32(max(1, (o.Bytes+n.Core.Chunk-1)/n.Core.Chunk))
	return h
}

// barred reports whether nobody can have sent a chunk of operation i, if it is eager: the rank has
// posted it, or one before it, with a barrier that it cannot have entered, since an eager operation
// before that is not done. There may be barriers that this does not see, such as those of Broadcasts.
func (n *rank) barred(i int) bool {
	if n.Core.Lossless || !n.eager(&n.Ops[i]) {
		return false
	}
	waits := false // an eager operation is not done
	for _, b := range n.ops[:min(i+1, len(n.ops))] {
		eager := n.eager(b.Op)
		if waits && (b.Sync || !eager && b.Collective != wire.Broadcast) {
			return true
		}
		waits = waits || eager && !b.done
	}
	return false
}

// eager reports whether an operation is sent at once.
func (n *rank) eager(o *Op) bool {
	c, shards := &n.Core, n.Core.Size
	if o.Collective == wire.Broadcast {
		shards = 1
	}
	chunks := max(1, (o.Bytes+c.Chunk-1)/c.Chunk)
	return shards*o.Bytes <= c.Eager && shards*chunks <= c.EagerChunks
}
