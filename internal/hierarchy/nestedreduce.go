package hierarchy

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// partialSums is memory for what nodes have summed and columns have not. A slot is used again once the
// column has summed what was in it.
type partialSums struct {
	slots [sumSlots][]byte
	used  [sumSlots]*engine.Work // what reads it last
	next  int
}

// sumSlots is how many segments may lie between the two levels.
const sumSlots = 4

// nodeSums are a node's for its column's owners, of a segment: a row of equal length for each.
type nodeSums struct {
	bytes []byte
	row   int
	free  *engine.Work // must be done before anything is written; nil: nothing need be
	used  **engine.Work
}

// rows returns some that lie one behind the other.
func (s *nodeSums) rows(from, to int) []byte { return s.bytes[from*s.row : to*s.row] }

// readBy says which step reads them last.
func (s *nodeSums) readBy(w *engine.Work) { *s.used = w }

// take returns a slot for so many rows. Its user says who reads it before the next is taken.
func (p *partialSums) take(rows, bytes int) *nodeSums {
	slot, all := p.next, rows*bytes
	p.next = (p.next + 1) % sumSlots
	s := &nodeSums{row: bytes, free: p.used[slot], used: &p.used[slot]}
	if cap(p.slots[slot]) < all {
		p.slots[slot], s.free = make([]byte, all), nil
	}
	s.bytes = p.slots[slot][:all]
	return s
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

// reduceScatter is a Reduce-Scatter on two levels: each node sums its ranks' input for the owners
// of every column, and each column sums the results of its nodes. The result for a rank in no
// column goes to the rank that stands for it, and from there over memory.
func (n *nested) reduceScatter(send, recv []byte, o collective.Op, p piece) (rest func() *Work, err error) {
	a, bytes, size := n.plan, len(recv), o.Type.Size()
	segments := a.ReduceSegment(p.segment).Cut(bytes, size)
	within, across, finish := split(o, a.Size)
	c, err := n.compose(outline{
		class: overlap.Reduce, call: callOf(wire.ReduceScatter, o, bytes, 0), own: bytes, steps: n.reductions(len(segments)),
		piece: p, finish: onSuccess(func() { finish(recv) }),
	})
	if err != nil {
		return nil, err
	}
	if !a.Crosses() {
		c.joinRoute()
	}
	for _, s := range segments {
		within.Count, across.Count = s.Len()/size, s.Len()/size
		result := recv[s.From:s.To]
		shard := func(rank int) []byte { return send[rank*bytes+s.From : rank*bytes+s.To] }
		if !a.Crosses() {
			c.reduces(n.node, n.sumsOfNode(within, shard, nil)...)
			c.forward(across, a.Surplus, nil, result)
			continue
		}
		sums := n.sums.take(len(a.Owners[a.Node.Own]), s.Len())
		summed := c.reduces(n.node, n.sumsOfNode(within, shard, sums)...)
		read := c.reduces(n.column, n.sumsOfColumn(across, sums, result, c.before(last(summed), n.column))...)
		sums.readBy(c.before(allOf(read), n.node))
		c.forward(across, a.Surplus, sums, result)
	}
	return func() *Work { return c.work(len(segments)) }, nil
}

// reductions returns of how many steps a Reduce-Scatter of so many segments is.
func (n *nested) reductions(segments int) (s steps) {
	a := n.plan
	if s.within = 1; !a.Even() {
		s.within = a.Node.Size() // one for each column, and one for each rank in none
	}
	if a.Crosses() {
		s.across = 1 + len(a.StandsFor())
	}
	return s.times(segments)
}

// sumsOfNode are the steps that sum what this node has of a segment, for the owners of all columns; sums takes those of
// the own column. Columns of equal hosts have as many owners each, so that one step sums for all of them.
func (n *nested) sumsOfNode(o collective.Op, shard func(rank int) []byte, sums *nodeSums) (ops []engine.ReduceOp) {
	a := n.plan
	if a.Even() {
		row := func(column, row int) []byte { return shard(a.Owners[column][row]) }
		return []engine.ReduceOp{{Op: direct.Op{Op: o, Recv: sums.bytes, Rows: len(a.Nodes), Row: row}, After: sums.free}}
	}
	for column, owners := range a.Owners {
		op := reduction(o, column, nil, nil, nil)
		op.Rows, op.Row = len(owners), func(_, row int) []byte { return shard(owners[row]) }
		if column == a.Node.Own {
			op.Recv, op.After = sums.bytes, sums.free
		}
		ops = append(ops, op)
	}
	return ops
}

// sumsOfColumn are the steps that add up the sums of the nodes. Results for ranks of this host that are in no column
// replace this node's own sums for them.
func (n *nested) sumsOfColumn(o collective.Op, sums *nodeSums, recv []byte, after *engine.Work) []engine.ReduceOp {
	a := n.plan
	shard := func(host int) []byte { return sums.rows(host, host+1) }
	ops := []engine.ReduceOp{{Op: direct.Op{Op: o, Recv: recv, Shards: shard}, After: after}}
	for _, h := range a.StandsFor() {
		all, partial := o, sums.rows(h.From, h.To)
		all.Count *= h.To - h.From
		op := reduction(all, h.Host, partial, nil, after)
		if h.Host == a.HostIndex {
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

// forward brings results of a segment to ranks of this host that are in no column. sums is the memory that this rank's
// column has read and that holds the results now; nil: this rank is in no column, and gets its own result in recv.
func (c *composed) forward(o collective.Op, to []team.Surplus, sums *nodeSums, recv []byte) {
	a, gives := c.plan, false
	var ops []engine.ReduceOp
	for _, r := range to {
		if r.Host != a.HostIndex {
			continue
		}
		op := reduction(o, r.Place, nil, nil, nil)
		op.Of = wire.ToRank(r.Column)
		switch a.Node.Own {
		case r.Column:
			op.Send, op.After, gives = sums.rows(r.Row, r.Row+1), *sums.used, true
		case r.Place:
			op.Recv = recv
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return
	}
	c.postpone(forwardBehind, func() {
		if given := c.reduces(c.node, ops...); gives {
			sums.readBy(last(given))
		}
	})
}

// forwardBehind is behind how many later segments results are forwarded. Slots are free for the next one all the same.
const forwardBehind = sumSlots / 2

// joinRoute has this rank's column agree with the others upon how to reduce, though it has nothing to.
func (c *composed) joinRoute() { _, c.err = c.column.Reduce.SubmitSteps(nil, nil) }

// reduce is a Reduce on two levels: to the root's column in each node, and there to the root's host. If the
// root is in no column, who stands for it forwards the result.
func (n *nested) reduce(send, recv []byte, o collective.Op, root int) (*Work, error) {
	a, size := n.plan, o.Type.Size()
	host, place := a.Where(root)
	column := place % a.Columns
	segments := team.RootSegment().Cut(len(send), size)
	within, across, finish := split(o, a.Size)
	crossing, here := 0, len(segments)
	switch {
	case column == a.Node.Own:
		crossing = len(segments)
	case a.Crosses():
		crossing = 1
	}
	var to []team.Surplus
	if place != column {
		to = []team.Surplus{{Rank: root, Host: host, Place: place, Column: column}}
		if host == a.HostIndex {
			here *= 2
		}
	}
	c, err := n.compose(outline{
		class: overlap.Reduce, call: callOf(wire.Reduce, o, len(send), root), own: len(recv), steps: steps{crossing, here},
		finish: onSuccess(func() { finish(recv) }),
	})
	if err != nil {
		return nil, err
	}
	switch {
	case crossing == 0:
		c.joinRoute()
	case column != a.Node.Own:
		// Nothing crosses in this column, but hosts that name roots in different columns meet in it. There is
		// one element: of none a switch hears nothing.
		nothing := make([]byte, size)
		across.Count = 1
		c.reduces(n.column, reduction(across, host, nothing, nothing, nil))
	}
	for _, s := range segments {
		within.Count, across.Count = s.Len()/size, s.Len()/size
		sum := reduction(within, column, send[s.From:s.To], nil, nil)
		var result []byte
		if root == a.Rank {
			result = recv[s.From:s.To]
		}
		if column != a.Node.Own {
			c.reduces(n.node, sum)
			c.forward(across, to, nil, result)
			continue
		}
		sums := n.sums.take(1, s.Len())
		sum.Recv, sum.After = sums.bytes, sums.free
		summed := c.reduces(n.node, sum)
		reads := reduction(across, host, sums.bytes, result, c.before(last(summed), n.column))
		if host == a.HostIndex && place != column {
			reads.Recv = sums.bytes
		}
		sums.readBy(c.before(last(c.reduces(n.column, reads)), n.node))
		c.forward(across, to, sums, result)
	}
	return c.work(len(segments)), nil
}
