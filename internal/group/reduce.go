package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
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
		return nil, argument("reduce-scatter: recv has %d bytes, which is no multiple of %d, the size of %v", len(recv), t.Size(), t)
	case len(send) != len(recv)*g.agreed.size:
		return nil, argument("reduce-scatter: send has %d bytes; %d ranks with a shard of %d bytes need %d",
			len(send), g.agreed.size, len(recv), len(recv)*g.agreed.size)
	}
	own := send[g.agreed.rank*len(recv):][:len(recv)]
	if overlaps(send, recv) && !engine.SameMemory(recv, own) {
		return nil, argument("reduce-scatter: recv overlaps send without being this rank's shard, send[%d:%d]",
			g.agreed.rank*len(recv), (g.agreed.rank+1)*len(recv))
	}
	defer g.holdPosting()()
	rest, err := g.reduceScatter(send, recv, collective.Op{Type: t, Reduction: op, Factor: factor}, false, nil)
	if err != nil {
		return nil, err
	}
	return rest(), nil
}

// reduceScatter posts a Reduce-Scatter, one that stays whole if it is a segment of something larger,
// and calls done, if that is not nil, at its end. rest posts what has to wait for others, and is called before
// more than handOnBehind more are begun. The caller has called holdPosting.
func (g *Group) reduceScatter(send, recv []byte, o collective.Op, whole bool, done func()) (rest func() *Work, err error) {
	if g.node != nil {
		return g.nodeReduceScatter(send, recv, o, whole, done)
	}
	o.Count = len(recv) / o.Type.Size()
	w, err := g.submitReduce(direct.Op{Op: o, Send: send, Recv: recv}, done)
	return func() *Work { return w }, err
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
	if root != g.agreed.rank {
		recv = nil
	}
	switch {
	case root < 0 || root >= g.agreed.size:
		return nil, argument("reduce: root %d is not a rank; ranks are 0 to %d", root, g.agreed.size-1)
	case len(send)%t.Size() != 0:
		return nil, argument("reduce: send has %d bytes, which is no multiple of %d, the size of %v", len(send), t.Size(), t)
	case root == g.agreed.rank && len(recv) != len(send):
		return nil, argument("reduce: send has %d bytes and the root's recv %d; they must be equal", len(send), len(recv))
	case overlaps(send, recv) && !engine.SameMemory(send, recv):
		return nil, argument("reduce: recv overlaps send without being the same memory")
	}
	defer g.holdPosting()()
	o := collective.Op{Type: t, Reduction: op, Factor: factor}
	if g.node != nil {
		return g.nodeReduce(send, recv, o, root)
	}
	o.To, o.Count = wire.ToRank(root), len(send)/t.Size()
	return g.submitReduce(direct.Op{Op: o, Send: send, Recv: recv}, nil)
}

// checkReduction reports what a call may not reduce, or how.
func checkReduction(call string, t reduce.Type, op reduce.Op) error {
	switch {
	case !t.Valid():
		return argument("%s: unknown element type %d; allowed are %s", call, uint8(t), reduce.TypeNames())
	case !op.Valid():
		return argument("%s: unknown reduction %d; allowed are %s", call, uint8(op), reduce.OpNames())
	}
	return nil
}

// submitReduce hands an operation to the reduce lane and calls done, if that is not nil, at its end. g.posting is held.
func (g *Group) submitReduce(o direct.Op, done func()) (*Work, error) {
	if g.leaving {
		return nil, g.closed()
	}
	g.begun(overlap.Reduce)
	w, err := g.reduce.Submit(engine.ReduceOp{Op: o}, func() {
		g.ended(overlap.Reduce)
		if done != nil {
			done()
		}
	})
	if err != nil {
		g.ended(overlap.Reduce)
		return nil, err
	}
	g.checkDeparted(overlap.Reduce)
	kind := wire.ReduceScatter
	if _, one := o.To.Root(); one {
		kind = wire.Reduce
	}
	w.Book(g.books.of(kind, o.Bytes()))
	g.counters.reduceBytes.Add(uint64(len(o.Recv)))
	return &Work{Work: w, lane: g.lanes[overlap.Reduce]}, nil
}
