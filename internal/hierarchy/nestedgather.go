package hierarchy

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// allgather is an Allgather on two levels: each column gathers the shards of its ranks, and each
// node what its columns have gathered, host by host.
func (n *nested) allgather(send, own, recv []byte, p piece) (*Work, error) {
	if !engine.SameMemory(send, own) {
		copy(own, send)
	}
	a, shard := n.plan, len(own)
	segments := a.GatherSegment(p.segment).Cut(shard, 1)
	c, err := n.compose(outline{
		class: overlap.Gather, call: wire.Call{Collective: wire.Allgather, Bytes: uint64(shard)}, own: shard,
		steps: n.gatherings(len(segments)), piece: p,
	})
	if err != nil {
		return nil, err
	}
	rows := c.gathers(n.column, n.rowsOfColumn(segments, own, recv, p.follows)...)
	row := c.gathers(n.node, partOf(team.Stretch{To: shard}, a.Node.Ranks, own, recv, p.follows))
	surplus := c.gathers(n.column, n.surplusOfColumn(segments, own, recv, c.before(last(row), n.column))...)
	for _, w := range slices.Concat(rows, surplus) {
		c.before(w, n.node)
	}
	if c.err == nil {
		c.gathers(n.node, n.spread(segments, own, recv, rows, surplus)...)
	}
	return c.work(len(segments)), nil
}

// allgatherInto has each column gather into the Output. A rank in no column writes its shard there for another to send.
func (n *nested) allgatherInto(own, recv []byte, claims engine.GatherOp, finish func(error) error) (*Work, error) {
	a, shard := n.plan, len(own)
	segments := a.GatherSegment(false).Cut(shard, 1)
	posted := steps{n.gatherings(len(segments)).across, 1}
	if a.Node.Size() > a.Columns {
		posted.within = 2
	}
	c, err := n.compose(outline{
		class: overlap.Gather, call: wire.Call{Collective: wire.Allgather, Bytes: uint64(shard)}, own: shard,
		steps: posted, finish: finish,
	})
	if err != nil {
		return nil, err
	}
	rows := c.gathers(n.column, n.rowsOfColumn(segments, own, recv, nil)...)
	var written *engine.Work
	if posted.within > 1 {
		// Columns send what the ranks that they stand for have written.
		barrier := engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil)}
		written = c.before(last(c.gathers(n.node, barrier)), n.column)
	}
	surplus := c.gathers(n.column, n.surplusOfColumn(segments, own, recv, written)...)
	claims.After = c.before(allOf(slices.Concat(rows, surplus)), n.node)
	c.gathers(n.node, claims)
	return c.work(len(segments)), nil
}

// gatherings returns of how many steps an Allgather of so many segments is.
func (n *nested) gatherings(segments int) (s steps) {
	a := n.plan
	if a.Crosses() {
		s.across = 1 + a.StoodFor(a.Node.Own)
	}
	if s.within = a.Size - a.Node.Size(); a.Node.Size() == a.Columns {
		// one for each other host, instead of for each of its ranks in columns
		s.within -= (len(a.Nodes) - 1) * (a.Columns - 1)
	}
	return s.times(segments).plus(steps{within: 1}) // the own row
}

// rowsOfColumn are the steps, one a segment, in which this rank's column, if it is in one, gathers its ranks' shards.
func (n *nested) rowsOfColumn(segments []team.Stretch, own, recv []byte, after *engine.Work) (ops []engine.GatherOp) {
	a := n.plan
	if !a.Crosses() {
		return nil
	}
	for _, s := range segments {
		ops = append(ops, partOf(s, a.Column.Ranks, own, recv, after))
	}
	return ops
}

// surplusOfColumn are the steps that bring the shards of the ranks for which this rank's column stands, if it is in
// one: of each segment a Broadcast for each of them.
func (n *nested) surplusOfColumn(
	segments []team.Stretch, own, recv []byte, after *engine.Work,
) (ops []engine.GatherOp) {
	a := n.plan
	for _, s := range segments {
		for _, r := range a.Surplus {
			if r.Column == a.Node.Own {
				ops = append(ops, copyOf(recv[r.Rank*len(own):][s.From:s.To:s.To], r.Host, r.Host == a.HostIndex, after))
			}
		}
	}
	return ops
}

// spread returns the steps that bring the shards of other hosts to all ranks of this host, in recv. They come from the
// ranks of this host that have them from their columns. Where all ranks of a host are in columns, such a step is an
// Allgather of the shards that their columns have gathered from one host, else a Broadcast of a shard. rows and surplus
// are the steps of this rank's column that bring it these shards, see rowsOfColumn and surplusOfColumn.
func (n *nested) spread(
	segments []team.Stretch, own, recv []byte, rows, surplus []*engine.Work,
) (ops []engine.GatherOp) {
	a := n.plan
	shard := func(rank int) []byte { return recv[rank*len(own):][:len(own)] }
	broadcast := func(s team.Stretch, rank, root int, arrives []*engine.Work, i int) {
		op := copyOf(shard(rank)[s.From:s.To:s.To], root, root == a.Node.Own, nil)
		if root == a.Node.Own {
			op.After = arrives[i]
		}
		ops = append(ops, op)
	}
	for i, s := range segments {
		for h, node := range a.Nodes {
			switch {
			case h == a.HostIndex:
			case a.Node.Size() == a.Columns:
				ops = append(ops, partOf(s, node[:a.Columns], shard(node[a.Node.Own]), recv, rows[i]))
			default:
				for place, rank := range node[:a.Columns] {
					broadcast(s, rank, place, rows, i)
				}
			}
		}
	}
	for i, s := range segments {
		for _, r := range a.Surplus {
			if r.Host != a.HostIndex {
				broadcast(s, r.Rank, r.Column, surplus, i*a.StoodFor(r.Column)+r.Row-len(a.Nodes))
			}
		}
	}
	return ops
}

// partOf is a step of an Allgather of one stretch of the shards of some ranks, each to its place in recv. send is the
// whole shard that this rank puts in: its own, or one that its column has brought from another host.
func partOf(s team.Stretch, ranks []int, send, recv []byte, after *engine.Work) engine.GatherOp {
	n := len(send)
	return engine.GatherOp{
		Op:   multicast.Op{Collective: wire.Allgather, Bytes: s.Len(), Slots: ranks, Stride: n},
		Send: nonNil(send[s.From:s.To:s.To]), Recv: recv[s.From : len(recv)-n+s.To], After: after,
	}
}

// copyOf is a Broadcast of some bytes from a root; sends says that it is this rank.
func copyOf(part []byte, root int, sends bool, after *engine.Work) engine.GatherOp {
	o := engine.GatherOp{
		Op: multicast.Op{Collective: wire.Broadcast, Root: root, Bytes: len(part)}, Recv: part, After: after,
	}
	if sends {
		o.Send = nonNil(part)
	}
	return o
}

// broadcast is a Broadcast on two levels: over the root's column, and from there in each node. If the root is in no
// column, a Broadcast on its host comes first, and reaches the rank that stands for it.
func (n *nested) broadcast(buf []byte, root int) (*Work, error) {
	a := n.plan
	host, place := a.Where(root)
	stands := place % a.Columns
	segments := team.RootSegment().Cut(len(buf), 1)
	crossing, own := 0, 0
	switch {
	case stands == a.Node.Own:
		crossing = len(segments)
	case a.Crosses():
		crossing = 1
	}
	if root == a.Rank {
		own = len(buf)
	}
	call := wire.Call{Collective: wire.Broadcast, Root: uint16(root), Bytes: uint64(len(buf))}
	c, err := n.compose(outline{class: overlap.Gather, call: call, own: own, steps: steps{crossing, len(segments)}})
	if err != nil {
		return nil, err
	}
	from := stands // the root in this node
	if host == a.HostIndex {
		from = place
	}
	var across, within []engine.GatherOp
	for _, s := range segments {
		part := buf[s.From:s.To:s.To]
		if stands == a.Node.Own {
			across = append(across, copyOf(part, host, host == a.HostIndex, nil))
		}
		within = append(within, copyOf(part, from, from == a.Node.Own, nil))
	}
	if crossing > 0 && stands != a.Node.Own {
		// Nothing crosses in this column, but hosts that name roots in different columns meet in it.
		c.gathers(n.column, copyOf(nil, host, host == a.HostIndex, nil))
	}
	if host == a.HostIndex && place != stands {
		here := c.gathers(n.node, within...)
		if stands == a.Node.Own {
			for i := range here {
				across[i].After = c.before(here[i], n.column)
			}
		}
		c.gathers(n.column, across...)
	} else {
		arrived := c.gathers(n.column, across...)
		if root != a.Rank {
			for i := range arrived {
				within[i].After = c.before(arrived[i], n.node)
			}
		}
		c.gathers(n.node, within...)
	}
	return c.work(len(segments)), nil
}

// barrier is a Barrier on two levels: of the node, and then of the column, in which each rank stands
// for its node. Ranks in no column learn in another one of their node what their columns have.
func (n *nested) barrier() (*Work, error) {
	a, crossing, within := n.plan, 0, 1
	if a.Crosses() {
		crossing = 1
	}
	if a.Node.Size() > a.Columns {
		within = 2
	}
	c, err := n.compose(outline{
		class: overlap.Gather, call: wire.Call{Collective: wire.Barrier}, steps: steps{crossing, within},
	})
	if err != nil {
		return nil, err
	}
	barrier := func(after *engine.Work) engine.GatherOp {
		return engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil), After: after}
	}
	here := c.gathers(n.node, barrier(nil))
	var there []*engine.Work
	if crossing > 0 {
		there = c.gathers(n.column, barrier(c.before(last(here), n.column)))
	}
	if within > 1 {
		c.gathers(n.node, barrier(c.before(last(there), n.node)))
	}
	return c.work(1), nil
}
