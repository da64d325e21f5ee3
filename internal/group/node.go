package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
)

// newNode makes the level of the ranks of this host over the region. It has no class: the column's class paces it
// (decision 0046).
func (g *Group) newNode(r hostnet.Region) *hierarchy.Level {
	a, fabric := g.plan, r.Gather()
	t := fabric.Traits()
	gather := engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{
			Rank: a.Node.Own, Size: a.Node.Size(), Chunk: t.Chunk, Lossless: t.Lossless, Window: t.Window,
			Chains: 1, Subgroups: 1, Eager: min(a.Settings.Eager, arenaBytes), Arena: arenaBytes, EagerChunks: eagerChunks,
			Cutoff: a.Settings.Cutoff, Reorder: reorder,
		},
		Job: a.Job, Fabric: fabric, Clock: g.clock,
		Broken: g.brokenAmong(&a.Node),
		Trace:  g.monitor.Traced("gather of the node", &a.Node),
	})
	reduce := engine.NewReduce(engine.ReduceConfig{
		Rank: a.Node.Own, Size: a.Node.Size(), Clock: g.clock,
		Broken: g.reduceBrokenAmong(&a.Node),
		Trace:  g.monitor.Traced("reduce of the node", &a.Node),
	})
	reduce.Begin(0, nil, r.Streams())
	return hierarchy.NewLevel(&a.Node, gather, reduce)
}
