package group

import (
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// level is some ranks of a group that work together over one fabric, and the lanes on which this rank does.
// A group has a level of the ranks that the network joins. Where hosts hold several ranks, it has another one of the
// ranks of this host, which share memory.
type level struct {
	members *team.Members
	gather  *engine.Gather
	reduce  *engine.Reduce
	lanes   [2]*overlap.Lane // of gather and reduce
}

func newLevel(m *team.Members, gather *engine.Gather, reduce *engine.Reduce) *level {
	return &level{members: m, gather: gather, reduce: reduce, lanes: [2]*overlap.Lane{
		overlap.Gather: overlap.NewLane(gather),
		overlap.Reduce: overlap.NewLane(reduce),
	}}
}

// newNode makes the level of the ranks of this host over the region. It has no class: the column's class paces it
// (decision 0046).
func (g *Group) newNode(r hostnet.Region) *level {
	a, fabric := g.agreed, r.Gather()
	t := fabric.Traits()
	gather := engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{
			Rank: a.Node.Own, Size: a.Node.Size(), Chunk: t.Chunk, Lossless: t.Lossless, Window: t.Window,
			Chains: 1, Subgroups: 1, Eager: min(a.Settings.Eager, arenaBytes), Arena: arenaBytes, EagerChunks: eagerChunks,
			Cutoff: a.Settings.Cutoff, Reorder: reorder,
		},
		Job: a.Job, Fabric: fabric, Clock: g.clock,
		Broken: g.brokenAmong(&a.Node),
		Trace:  g.traced("gather of the node"),
	})
	reduce := engine.NewReduce(engine.ReduceConfig{
		Rank: a.Node.Own, Size: a.Node.Size(), Clock: g.clock,
		Broken: g.reduceBrokenAmong(&a.Node),
		Trace:  g.traced("reduce of the node"),
	})
	reduce.Begin(0, nil, r.Streams())
	return newLevel(&a.Node, gather, reduce)
}

// last is the level of the ranks of this host, if there is one, else the level of all ranks. Allgathers end there.
func (g *Group) last() *level { return g.levels[len(g.levels)-1] }

// inFlight returns how many operations of a class were posted and are not done.
func (l *level) inFlight(c overlap.Class) int {
	if c == overlap.Gather {
		return l.gather.InFlight()
	}
	return l.reduce.InFlight()
}

// fail ends all operations.
func (l *level) fail(err error) {
	l.gather.Fail(err)
	l.reduce.Fail(err)
}

// help does a little of what there is to do, if nobody else is at it: see overlap.Lane.
func (l *level) help() {
	for _, lane := range l.lanes {
		lane.Help()
	}
}

// stop ends the agents, and the operations in flight.
func (l *level) stop() {
	for _, lane := range l.lanes {
		lane.Close()
	}
	l.gather.Work()
	l.reduce.Work()
}

// close frees a level that was stopped.
func (l *level) close() error { return errors.Join(l.reduce.Close(), l.gather.Close()) }
