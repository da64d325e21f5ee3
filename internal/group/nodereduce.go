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

// callOf is the call of a reduction of so many bytes a shard.
func callOf(c wire.Collective, o collective.Op, bytes, root int) wire.Call {
	call := wire.Call{Collective: c, Op: uint8(o.Reduction), Root: uint16(root), Bytes: uint64(bytes)}
	if o.Reduction == reduce.PremulSum {
		call.Factor = o.Factor
	}
	return call
}

// nodeReduceScatter is a Reduce-Scatter on two levels: each node sums what it has for the ranks of
// every host, one for each column, which sums what its nodes have. What is for a rank in no column goes
// to the one that stands for it, and from there over memory. whole says that it is a segment
// already. done, if not nil, is called at its end.
func (g *Group) nodeReduceScatter(send, recv []byte, o collective.Op, whole bool, done func()) (*Work, error) {
	a, n, size := g.agreed, len(recv), o.Type.Size()
	segments := g.cut(n, size, whole)
	within, across, finish := split(o, a.size)
	crossing, here := a.reductions()
	c, err := g.compose(overlap.Reduce, callOf(wire.ReduceScatter, o, n, 0), len(segments)*crossing, len(segments)*here, false, onSuccess(func() { finish(recv) }), done)
	if err != nil {
		return nil, err
	}
	if crossing == 0 {
		c.joinRoute()
	}
	for _, s := range segments {
		within.Count, across.Count = s.len()/size, s.len()/size
		result := recv[s.from:s.to]
		shard := func(rank int) []byte { return send[rank*n+s.from : rank*n+s.to] }
		if crossing == 0 {
			c.reduces(false, a.sumsOfNode(within, shard, nil, nil)...)
			c.handOn(across, a.surplus, nil, result, nil, 0)
			continue
		}
		slot, partial, free := g.node.sums.take((len(a.nodes) + crossing - 1) * s.len())
		sum := func(i int) []byte { return partial[i*s.len() : (i+1)*s.len()] }
		summed := c.reduces(false, a.sumsOfNode(within, shard, sum, free)...)
		reads := c.reduces(true, a.sumsOfColumn(across, sum, result, c.before(last(summed), true))...)
		c.handOn(across, a.surplus, sum, result, c.before(allOf(reads), false), slot)
	}
	return c.work(n, len(segments))
}

// reductions returns of how many steps of this rank's column and of its node a segment of a Reduce-Scatter is.
func (a *agreement) reductions() (across, within int) {
	within = len(a.nodes) + len(a.surplus)
	if alone := a.node.size() - a.columns; alone > 0 {
		within = len(a.nodes)*a.columns + len(a.surplus) + alone
	}
	if a.crosses() {
		across = 1
		for _, r := range a.surplus {
			if r.column == a.node.own {
				across++
			}
		}
	}
	return across, within
}

// sumsOfNode are the steps that sum what this node has of a segment: sum is where the sum for a host's rank
// of the own column goes, by the number of the host, and behind these those for ranks that the column stands for.
// Where all ranks of the host are in columns, a step sums for all columns at once.
func (a *agreement) sumsOfNode(o collective.Op, shard, sum func(int) []byte, free *engine.Work) (ops []engine.ReduceOp) {
	reduce := func(column, rank, i int) {
		op := reduction(o, column, shard(rank), nil, nil)
		if column == a.node.own {
			op.Recv, op.After = sum(i), free
		}
		ops = append(ops, op)
	}
	for h, node := range a.nodes {
		if a.node.size() == a.columns {
			ops = append(ops, engine.ReduceOp{Op: direct.Op{Op: o, Recv: sum(h), Shards: func(place int) []byte {
				return shard(node[place])
			}}, After: free})
			continue
		}
		for column, rank := range node[:a.columns] {
			reduce(column, rank, h)
		}
	}
	for _, r := range a.surplus {
		reduce(r.column, r.rank, len(a.nodes)+r.nth)
	}
	return ops
}

// sumsOfColumn are the steps that sum what the nodes have. What is for a rank of this host that is in no column
// takes the place of what this node had for it.
func (a *agreement) sumsOfColumn(o collective.Op, sum func(int) []byte, recv []byte, after *engine.Work) []engine.ReduceOp {
	ops := []engine.ReduceOp{{Op: direct.Op{Op: o, Recv: recv, Shards: sum}, After: after}}
	for _, r := range a.surplus {
		if r.column != a.node.own {
			continue
		}
		partial := sum(len(a.nodes) + r.nth)
		op := reduction(o, r.host, partial, nil, after)
		if r.host == a.host {
			op.Recv = partial
		}
		ops = append(ops, op)
	}
	return ops
}

// reduction is a step that reduces to one of those who take part in it.
func reduction(o collective.Op, root int, send, recv []byte, after *engine.Work) engine.ReduceOp {
	o.To = wire.ToRank(root)
	return engine.ReduceOp{Op: direct.Op{Op: o, Send: send, Recv: recv}, After: after}
}

// handOn brings results to ranks of this host that are in no column: the sums that their columns have read, and
// of which this one gets its own in recv. The slot that the sums are in is used until then.
func (c *composed) handOn(o collective.Op, to []surplus, sum func(int) []byte, recv []byte, read *engine.Work, slot int) {
	a, gives := c.agreed, false
	var ops []engine.ReduceOp
	for _, r := range to {
		if r.host != a.host {
			continue
		}
		op := reduction(o, r.place, nil, nil, nil)
		op.Of = wire.ToRank(r.column)
		switch a.node.own {
		case r.column:
			op.Send, op.After, gives = sum(len(a.nodes)+r.nth), read, true
		case r.place:
			op.Recv = recv
		}
		ops = append(ops, op)
	}
	if sum != nil {
		c.node.sums.used[slot] = read
	}
	if len(ops) > 0 {
		c.postpone(sumSlots/2, func() {
			if given := c.reduces(false, ops...); gives {
				c.node.sums.used[slot] = last(given)
			}
		})
	}
}

// joinRoute has this rank's column agree with the others upon how to reduce, though it has nothing to.
func (c *composed) joinRoute() { _, c.err = c.reduce.SubmitAll(nil, nil) }

// nodeReduce is a Reduce on two levels: to the root's column in each node, and there to the root's host. If the
// root is in no column, who stands for it hands the result on.
func (g *Group) nodeReduce(send, recv []byte, o collective.Op, root int) (*Work, error) {
	a, size := g.agreed, o.Type.Size()
	host, place := a.where(root)
	column := place % a.columns
	segments := g.cut(len(send), size, false)
	within, across, finish := split(o, a.size)
	crossing, here := 0, len(segments)
	switch {
	case column == a.node.own:
		crossing = len(segments)
	case a.crosses():
		crossing = 1
	}
	var to []surplus
	if place != column {
		to = []surplus{{root, host, place, column, -len(a.nodes)}}
		if host == a.host {
			here *= 2
		}
	}
	c, err := g.compose(overlap.Reduce, callOf(wire.Reduce, o, len(send), root), crossing, here, false, onSuccess(func() { finish(recv) }), nil)
	if err != nil {
		return nil, err
	}
	switch {
	case crossing == 0:
		c.joinRoute()
	case column != a.node.own:
		// Nothing crosses in this column, but hosts that name roots in different columns meet in it. There is
		// one element: of none a switch hears nothing.
		nothing := make([]byte, size)
		across.Count = 1
		c.reduces(true, reduction(across, host, nothing, nothing, nil))
	}
	for _, s := range segments {
		within.Count, across.Count = s.len()/size, s.len()/size
		sum := reduction(within, column, send[s.from:s.to], nil, nil)
		var result []byte
		if root == a.rank {
			result = recv[s.from:s.to]
		}
		if column != a.node.own {
			c.reduces(false, sum)
			c.handOn(across, to, nil, result, nil, 0)
			continue
		}
		slot, partial, free := g.node.sums.take(s.len())
		sum.Recv, sum.After = partial, free
		summed := c.reduces(false, sum)
		reads := reduction(across, host, partial, result, c.before(last(summed), true))
		if host == a.host && place != column {
			reads.Recv = partial
		}
		read := c.before(last(c.reduces(true, reads)), false)
		c.handOn(across, to, func(int) []byte { return partial }, result, read, slot)
	}
	return c.work(len(recv), len(segments))
}
