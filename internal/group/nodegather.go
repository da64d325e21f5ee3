package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// nodeAllgather is an Allgather on two levels: each column gathers the shards of its ranks, and each
// node what its columns have gathered, host by host. The own shard lies in its place in recv. If
// follows is not nil, it must be done before. done, if not nil, is called at its end.
func (g *Group) nodeAllgather(own, recv []byte, follows *engine.Work, done func()) (*Work, error) {
	a, n := g.agreed, len(own)
	segments := g.cut(n, 1, follows != nil)
	x := g.crossing(segments, own, recv)
	within := g.spread(segments, x, own, recv)
	c, err := g.compose(overlap.Gather, wire.Call{Collective: wire.Allgather, Bytes: uint64(n)}, x.steps(), 1+len(within), follows != nil, nil, done)
	if err != nil {
		return nil, err
	}
	arrived := c.gathers(true, behind(follows, x.columns)...)
	row := c.gathers(false, partOf(stretch{0, n}, a.node.ranks, own, recv, follows))
	if len(x.surplus) > 0 {
		arrived = append(arrived, c.gathers(true, behind(c.before(last(row), true), x.surplus)...)...)
	}
	if len(arrived) == x.steps() {
		for i := range arrived {
			c.before(arrived[i], false)
		}
		for i := range within {
			if from := within[i].from; from >= 0 {
				within[i].After = arrived[from]
			}
		}
	}
	c.gathers(false, opsOf(within)...)
	return c.work(n, len(segments))
}

// crossing is what this rank's column does in an Allgather, if it is in one.
type crossing struct {
	columns []engine.GatherOp // of each segment, a step in which the column gathers its ranks' shards
	surplus []engine.GatherOp // then, of each segment, a Broadcast for each rank that this column stands for
	of      map[piece]int     // which of all these brings what of a rank in no column
}

// piece is a segment of a rank's shard.
type piece struct{ rank, segment int }

// steps is how many there are.
func (x *crossing) steps() int { return len(x.columns) + len(x.surplus) }

// crossing returns what this rank's column does in an Allgather into recv.
func (g *Group) crossing(segments []stretch, own, recv []byte) *crossing {
	a, n, x := g.agreed, len(own), &crossing{of: map[piece]int{}}
	if !a.crosses() {
		return x
	}
	for _, s := range segments {
		x.columns = append(x.columns, partOf(s, a.column.ranks, own, recv, nil))
	}
	for i, s := range segments {
		for _, r := range a.surplus {
			if r.column == a.node.own {
				x.of[piece{r.rank, i}] = x.steps()
				x.surplus = append(x.surplus, copyOf(recv[r.rank*n:][s.from:s.to:s.to], r.host, r.host == a.host))
			}
		}
	}
	return x
}

// nodeStep is a step of an Allgather in a node.
type nodeStep struct {
	engine.GatherOp
	from int // the step of the own column that must be done before; -1: none
}

func opsOf(steps []nodeStep) (ops []engine.GatherOp) {
	for _, s := range steps {
		ops = append(ops, s.GatherOp)
	}
	return ops
}

// spread returns the steps that bring the shards of other hosts from the ranks of this one that have
// them from their columns to all of it, in recv. Where all ranks of a host are in columns, such a step is an
// Allgather of what their columns have gathered of one host, else a Broadcast of a shard.
func (g *Group) spread(segments []stretch, x *crossing, own, recv []byte) (steps []nodeStep) {
	a, n := g.agreed, len(own)
	shard := func(rank int) []byte { return recv[rank*n:][:n] }
	broadcast := func(s stretch, rank, root, from int) {
		step := nodeStep{copyOf(shard(rank)[s.from:s.to:s.to], root, root == a.node.own), -1}
		if root == a.node.own {
			step.from = from
		}
		steps = append(steps, step)
	}
	for i, s := range segments {
		for h, node := range a.nodes {
			switch {
			case h == a.host:
			case a.node.size() == a.columns:
				steps = append(steps, nodeStep{partOf(s, node[:a.columns], shard(node[a.node.own]), recv, nil), i})
			default:
				for place, rank := range node[:a.columns] {
					broadcast(s, rank, place, i)
				}
			}
		}
	}
	for i, s := range segments {
		for _, r := range a.surplus {
			if r.host != a.host {
				broadcast(s, r.rank, r.column, x.of[piece{r.rank, i}])
			}
		}
	}
	return steps
}

// behind has steps follow an operation, unless it is nil.
func behind(w *engine.Work, steps []engine.GatherOp) []engine.GatherOp {
	for i := range steps {
		steps[i].After = w
	}
	return steps
}

// partOf is a step of an Allgather in which some ranks gather a stretch of their shards, of which send is
// this one's, to where they belong in recv.
func partOf(s stretch, ranks []int, send, recv []byte, after *engine.Work) engine.GatherOp {
	n := len(send)
	return engine.GatherOp{
		Op:   multicast.Op{Collective: wire.Allgather, Bytes: s.len(), Slots: ranks, Stride: n},
		Send: nonNil(send[s.from:s.to:s.to]), Recv: recv[s.from : len(recv)-n+s.to], After: after,
	}
}

// copyOf is a Broadcast of some bytes from a root; sends says that it is this rank.
func copyOf(part []byte, root int, sends bool) engine.GatherOp {
	o := engine.GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Root: root, Bytes: len(part)}, Recv: part}
	if sends {
		o.Send = nonNil(part)
	}
	return o
}

// nodeBroadcast is a Broadcast on two levels: over the root's column, and from there in each node. If the
// root is in no column, that of its host comes first, and brings it to the rank that stands for it.
func (g *Group) nodeBroadcast(buf []byte, root int) (*Work, error) {
	a := g.agreed
	host, place := a.where(root)
	stands := place % a.columns
	segments := g.cut(len(buf), 1, false)
	crossing, own := 0, 0
	switch {
	case stands == a.node.own:
		crossing = len(segments)
	case a.crosses():
		crossing = 1
	}
	if root == a.rank {
		own = len(buf)
	}
	call := wire.Call{Collective: wire.Broadcast, Root: uint16(root), Bytes: uint64(len(buf))}
	c, err := g.compose(overlap.Gather, call, crossing, len(segments), false, nil, nil)
	if err != nil {
		return nil, err
	}
	from := stands // the root in this node
	if host == a.host {
		from = place
	}
	var across, within []engine.GatherOp
	for _, s := range segments {
		part := buf[s.from:s.to:s.to]
		if stands == a.node.own {
			across = append(across, copyOf(part, host, host == a.host))
		}
		within = append(within, copyOf(part, from, from == a.node.own))
	}
	if crossing > 0 && stands != a.node.own {
		// Nothing crosses in this column, but hosts that name roots in different columns meet in it.
		c.gathers(true, copyOf(nil, host, host == a.host))
	}
	if host == a.host && place != stands {
		here := c.gathers(false, within...)
		if stands == a.node.own {
			for i := range here {
				across[i].After = c.before(here[i], true)
			}
		}
		c.gathers(true, across...)
	} else {
		arrived := c.gathers(true, across...)
		if root != a.rank {
			for i := range arrived {
				within[i].After = c.before(arrived[i], false)
			}
		}
		c.gathers(false, within...)
	}
	return c.work(own, len(segments))
}

// nodeBarrier is a Barrier on two levels: of the node, and then of the column, in which each rank stands
// for its node. Ranks in no column learn in another one of their node what their columns have.
func (g *Group) nodeBarrier() (*Work, error) {
	a, crossing, within := g.agreed, 0, 1
	if a.crosses() {
		crossing = 1
	}
	if a.node.size() > a.columns {
		within = 2
	}
	c, err := g.compose(overlap.Gather, wire.Call{Collective: wire.Barrier}, crossing, within, false, nil, nil)
	if err != nil {
		return nil, err
	}
	barrier := func(after *engine.Work) engine.GatherOp {
		return engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil), After: after}
	}
	here := c.gathers(false, barrier(nil))
	var there []*engine.Work
	if crossing > 0 {
		there = c.gathers(true, barrier(c.before(last(here), true)))
	}
	if within > 1 {
		c.gathers(false, barrier(c.before(last(there), false)))
	}
	return c.work(0, 1)
}
