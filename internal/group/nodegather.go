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
	c, err := g.compose(overlap.Gather, len(segments), 1+len(segments)*(len(a.nodes)-1), follows != nil, nil, done)
	if err != nil {
		return nil, err
	}
	across := make([]engine.GatherOp, len(segments))
	for i, s := range segments {
		across[i] = g.ofColumn(s, own, recv, follows)
	}
	arrived := c.gathers(true, across...)
	within := []engine.GatherOp{partOf(stretch{0, n}, a.node.ranks, own, recv, follows)}
	for i, s := range segments {
		var here *engine.Work
		if arrived != nil {
			here = c.before(arrived[i], false)
		}
		for h, node := range a.nodes {
			if h != a.column.own {
				within = append(within, partOf(s, node, recv[node[a.node.own]*n:][:n], recv, here))
			}
		}
	}
	c.gathers(false, within...)
	return c.work(n, len(segments))
}

// ofColumn is the step of an Allgather in which a column gathers a stretch of its ranks' shards.
func (g *Group) ofColumn(s stretch, own, recv []byte, after *engine.Work) engine.GatherOp {
	return partOf(s, g.agreed.column.ranks, own, recv, after)
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

// nodeBroadcast is a Broadcast on two levels: over the root's column, and from there in each node.
func (g *Group) nodeBroadcast(buf []byte, root int) (*Work, error) {
	a := g.agreed
	host, place := a.where(root)
	segments := g.cut(len(buf), 1, false)
	crossing, own := 0, 0
	if place == a.node.own {
		crossing = len(segments)
	}
	if root == a.rank {
		own = len(buf)
	}
	c, err := g.compose(overlap.Gather, crossing, len(segments), false, nil, nil)
	if err != nil {
		return nil, err
	}
	broadcast := func(s stretch, root int, sends bool) engine.GatherOp {
		part := buf[s.from:s.to:s.to]
		o := engine.GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Root: root, Bytes: len(part)}, Recv: part}
		if sends {
			o.Send = nonNil(part)
		}
		return o
	}
	var across, within []engine.GatherOp
	for _, s := range segments {
		if place == a.node.own {
			across = append(across, broadcast(s, host, root == a.rank))
		}
		within = append(within, broadcast(s, place, place == a.node.own))
	}
	arrived := c.gathers(true, across...)
	if root != a.rank {
		for i := range arrived {
			within[i].After = c.before(arrived[i], false)
		}
	}
	c.gathers(false, within...)
	return c.work(own, len(segments))
}

// nodeBarrier is a Barrier on two levels: of the node, and then of the column, in which each rank stands
// for its node.
func (g *Group) nodeBarrier() (*Work, error) {
	c, err := g.compose(overlap.Gather, 1, 1, false, nil, nil)
	if err != nil {
		return nil, err
	}
	barrier := func(after *engine.Work) engine.GatherOp {
		return engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil), After: after}
	}
	here := c.gathers(false, barrier(nil))
	c.gathers(true, barrier(c.before(last(here), true)))
	return c.work(0, 1)
}
