package sim

import (
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// randomScatter draws which Allgathers have their shards anywhere in larger results, from numbers of its
// own: the rest of a seed's scenario does not depend on it.
func randomScatter(r *rand.Rand, s *Scenario) {
	if r.IntN(3) > 0 {
		return
	}
	for i := range s.Ops {
		if s.Ops[i].Collective == wire.Allgather && r.IntN(2) == 0 {
			s.Ops[i].Scatter = 1 + r.IntN(1<<16)
		}
	}
}

// place draws where a rank has the shards of an operation, and returns the bytes of the buffer.
func (b *buffers) place(rank int) (room int) {
	p := &b.placed
	*p = b.Op.Op
	if b.Scatter == 0 || b.Collective != wire.Allgather {
		return b.shards * b.Bytes
	}
	r := rand.New(rand.NewPCG(uint64(b.Scatter), uint64(rank)))
	slots := b.shards + pick(r, 0, 0, r.IntN(b.shards+1))
	if r.IntN(3) > 0 {
		p.Slots = r.Perm(slots)[:b.shards]
	}
	p.Stride = pick(r, 0, b.Bytes, b.Bytes+1, b.Bytes+r.IntN(64+b.Bytes))
	return slots * max(p.Stride, b.Bytes)
}

// start returns where a shard begins in the receive buffer.
func (b *buffers) start(shard int) int { return b.placed.Start(shard) }
