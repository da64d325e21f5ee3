package engine

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// arena returns the memory of eager operations: of every other epoch the second one.
func (g *Gather) arena(second bool) []byte {
	if second {
		return g.arenas[1]
	}
	return g.arenas[0]
}

// ownInArena is where the own shard of an eager operation lies in an arena.
func (g *Gather) ownInArena(o *gatherOp, r *multicast.Run) []byte {
	at := int(r.Head.Arena)
	if o.Collective == wire.Allgather {
		at += g.cfg.Core.Rank * o.Bytes
	}
	return g.arena(r.Second)[at : at+o.Bytes]
}

// unpack brings the result of an eager operation to its place, given the arena from there on. It leaves the
// own shard alone where it lies already: somebody else may read it there.
func (g *Gather) unpack(o *gatherOp, arena []byte) {
	switch {
	case o.Collective != wire.Allgather:
		if o.copied < o.Bytes { // not at the root, where the data lie already
			copy(o.Recv, arena)
		}
	case o.Dense() && o.copied < o.Bytes:
		copy(o.Recv[:g.cfg.Core.Size*o.Bytes], arena)
	default:
		for r := range g.cfg.Core.Size {
			if r != g.cfg.Core.Rank || o.copied < o.Bytes {
				copy(o.Recv[o.Start(r):][:o.Bytes], arena[r*o.Bytes:])
			}
		}
	}
}
