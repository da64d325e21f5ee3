package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// partialSums is memory for what nodes have summed and columns have not. A slot is used again once the
// column has summed what was in it.
type partialSums struct {
	slots [sumSlots][]byte
	used  [sumSlots]*engine.Work // the column's operation that reads it last
	next  int
}

// sumSlots is how many segments may lie between the two levels.
const sumSlots = 4

// take returns a slot, and what must be done before it is written to. Its user sets used.
func (s *partialSums) take(bytes int) (slot int, buf []byte, after *engine.Work) {
	slot = s.next
	s.next = (s.next + 1) % sumSlots
	if after = s.used[slot]; cap(s.slots[slot]) < bytes {
		s.slots[slot], after = make([]byte, bytes), nil
	}
	return slot, s.slots[slot][:bytes], after
}

// split returns the operations of nodes and columns that make up one of all ranks, and what its owner
// does with the result.
func split(o collective.Op, ranks int) (within, across collective.Op, finish func(result []byte)) {
	l := reduce.Nest(o.Type, o.Reduction, o.Factor, ranks)
	within, across = o, o
	within.Reduction, within.Factor = l.Within, l.Factor
	across.Reduction, across.Factor = l.Across, 0
	return within, across, func(result []byte) {
		if l.Divide {
			reduce.Divide(result, o.Type, ranks)
		}
	}
}

// nodeReduceScatter is a Reduce-Scatter on two levels: each node sums what it has for the ranks of
// every host, one for each column, which sums what its nodes have. whole says that it is a segment
// already. done, if not nil, is called at its end.
func (g *Group) nodeReduceScatter(send, recv []byte, o collective.Op, whole bool, done func()) (*Work, error) {
	a, n, size := g.agreed, len(recv), o.Type.Size()
	segments := g.cut(n, size, whole)
	within, across, finish := split(o, a.size)
	c, err := g.compose(overlap.Reduce, len(segments), len(segments)*len(a.nodes), false, onSuccess(func() { finish(recv) }), done)
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		slot, partial, free := g.node.sums.take(len(a.nodes) * s.len())
		sum := func(host int) []byte { return partial[host*s.len() : (host+1)*s.len()] }
		within.Count, across.Count = s.len()/size, s.len()/size
		sums := make([]engine.ReduceOp, len(a.nodes))
		for h, node := range a.nodes {
			sums[h] = engine.ReduceOp{Op: direct.Op{Op: within, Recv: sum(h), Shards: func(place int) []byte {
				return send[node[place]*n+s.from : node[place]*n+s.to]
			}}, After: free}
		}
		summed := c.reduces(false, sums...)
		reads := c.reduces(true, engine.ReduceOp{
			Op:    direct.Op{Op: across, Recv: recv[s.from:s.to], Shards: sum},
			After: c.before(last(summed), true),
		})
		g.node.sums.used[slot] = c.before(last(reads), false)
	}
	return c.work(n, len(segments))
}

// nodeReduce is a Reduce on two levels: to the root's column in each node, and there to the root.
func (g *Group) nodeReduce(send, recv []byte, o collective.Op, root int) (*Work, error) {
	a, size := g.agreed, o.Type.Size()
	host, place := a.where(root)
	segments := g.cut(len(send), size, false)
	within, across, finish := split(o, a.size)
	within.To, across.To = wire.ToRank(place), wire.ToRank(host)
	crossing := 0
	if place == a.node.own {
		crossing = len(segments)
	}
	c, err := g.compose(overlap.Reduce, crossing, len(segments), false, onSuccess(func() { finish(recv) }), nil)
	if err != nil {
		return nil, err
	}
	if place != a.node.own {
		// All columns agree upon how to reduce: this one must begin to as well, though with nothing.
		_, c.err = g.reduce.SubmitAll(nil, nil)
	}
	for _, s := range segments {
		within.Count, across.Count = s.len()/size, s.len()/size
		sum := engine.ReduceOp{Op: direct.Op{Op: within, Send: send[s.from:s.to]}}
		if place != a.node.own {
			c.reduces(false, sum)
			continue
		}
		slot, partial, free := g.node.sums.take(s.len())
		sum.Recv, sum.After = partial, free
		summed := c.reduces(false, sum)
		reads := engine.ReduceOp{Op: direct.Op{Op: across, Send: partial}, After: c.before(last(summed), true)}
		if root == a.rank {
			reads.Recv = recv[s.from:s.to]
		}
		g.node.sums.used[slot] = c.before(last(c.reduces(true, reads)), false)
	}
	return c.work(len(recv), len(segments))
}
