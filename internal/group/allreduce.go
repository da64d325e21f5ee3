package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Allreduce gives every rank the reduction of all ranks' send. send and recv have the same length
// and may be the same memory; otherwise they must not overlap. factor multiplies every input of a
// reduce.PremulSum. All ranks get the same bits, and the same inputs give the same bits. An
// Allreduce takes a place in both orders of operations: as a ReduceScatter in one, as an Allgather in the other.
func (g *Group) Allreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error {
	return g.wait(g.startAllreduce(send, recv, t, op, factor))
}

// StartAllreduce begins an Allreduce.
func (g *Group) StartAllreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	return g.posted(g.startAllreduce(send, recv, t, op, factor))
}

func (g *Group) startAllreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	if err := checkReduction("allreduce", t, op); err != nil {
		return nil, err
	}
	switch {
	case len(send) != len(recv):
		return nil, argument("allreduce: send has %d bytes and recv %d; they must be equal", len(send), len(recv))
	case len(send)%t.Size() != 0:
		return nil,
			argument("allreduce: send has %d bytes, which is no multiple of %d, the size of %v", len(send), t.Size(), t)
	case engine.Overlaps(send, recv) && !engine.SameMemory(send, recv):
		return nil, argument("allreduce: recv overlaps send without being the same memory")
	}
	return g.ops.Allreduce(send, recv, collective.Op{Type: t, Reduction: op, Factor: factor})
}
