package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// ReduceScatter gives every rank the reduction of all ranks' shard for it.
// send holds P shards of equal length, recv one; recv may be this rank's shard
// of send. factor multiplies every input of a reduce.PremulSum. The
// contributions of others are summed in rank order and this rank's own last (f16, bf16
// and 8-bit floats: all in rank order), so the same inputs give the same bits.
func (g *Group) ReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error {
	return g.wait(g.startReduceScatter(send, recv, t, op, factor))
}

// StartReduceScatter begins a ReduceScatter.
func (g *Group) StartReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	return g.posted(g.startReduceScatter(send, recv, t, op, factor))
}

func (g *Group) startReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	if err := checkReduction("reduce-scatter", t, op); err != nil {
		return nil, err
	}
	switch {
	case len(recv)%t.Size() != 0:
		return nil,
			argument("reduce-scatter: recv has %d bytes, which is no multiple of %d, the size of %v", len(recv), t.Size(), t)
	case len(send) != len(recv)*g.plan.Size:
		return nil, argument("reduce-scatter: send has %d bytes; %d ranks with a shard of %d bytes need %d",
			len(send), g.plan.Size, len(recv), len(recv)*g.plan.Size)
	}
	own := send[g.plan.Rank*len(recv):][:len(recv)]
	if engine.Overlaps(send, recv) && !engine.SameMemory(recv, own) {
		return nil, argument("reduce-scatter: recv overlaps send without being this rank's shard, send[%d:%d]",
			g.plan.Rank*len(recv), (g.plan.Rank+1)*len(recv))
	}
	return g.ops.ReduceScatter(send, recv, collective.Op{Type: t, Reduction: op, Factor: factor})
}

// Reduce gives root the reduction of all ranks' send. There recv is as long as
// send and may be the same memory; otherwise they must not overlap. The other
// ranks' recv is not looked at. It takes its place in the order of ReduceScatter, and
// sums as that does.
func (g *Group) Reduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64, root int) error {
	return g.wait(g.startReduce(send, recv, t, op, factor, root))
}

// StartReduce begins a Reduce.
func (g *Group) StartReduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64, root int) (*Work, error) {
	return g.posted(g.startReduce(send, recv, t, op, factor, root))
}

func (g *Group) startReduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64, root int) (*Work, error) {
	if err := checkReduction("reduce", t, op); err != nil {
		return nil, err
	}
	if err := checkRoot("reduce", root, g.plan.Size); err != nil {
		return nil, err
	}
	if root != g.plan.Rank {
		recv = nil
	}
	switch {
	case len(send)%t.Size() != 0:
		return nil, argument("reduce: send has %d bytes, which is no multiple of %d, the size of %v", len(send), t.Size(), t)
	case root == g.plan.Rank && len(recv) != len(send):
		return nil, argument("reduce: send has %d bytes and the root's recv %d; they must be equal", len(send), len(recv))
	case engine.Overlaps(send, recv) && !engine.SameMemory(send, recv):
		return nil, argument("reduce: recv overlaps send without being the same memory")
	}
	return g.ops.Reduce(send, recv, collective.Op{Type: t, Reduction: op, Factor: factor}, root)
}

// checkRoot reports a root that is not a rank.
func checkRoot(call string, root, size int) error {
	if root < 0 || root >= size {
		return argument("%s: root %d is not a rank; ranks are 0 to %d", call, root, size-1)
	}
	return nil
}

// checkReduction reports what a call may not reduce, or how.
func checkReduction(call string, t reduce.Type, op reduce.Op) error {
	switch {
	case !t.Valid():
		return argument("%s: unknown element type %d; allowed are %s", call, uint8(t), reduce.TypeNames())
	case !op.Valid():
		return argument("%s: unknown reduction %d; allowed are %s", call, uint8(op), reduce.OpNames())
	case !op.Takes(t):
		return argument("%s: %v of %v; bitwise reductions take integers alone", call, op, t)
	}
	return nil
}
