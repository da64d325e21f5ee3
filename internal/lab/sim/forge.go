package sim

import (
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// What strangers send must change nothing, however well it is formed, but for what the protocol
// cannot see: a chunk of the right operation, of the right size, that comes before the true one.

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
		if h.Collective == o.Collective && int(h.Bytes) == o.Bytes && (h.Collective != wire.Broadcast || int(h.Root) == o.Root) {
			return // it could be a true one
		}
	}
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
