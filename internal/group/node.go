package group

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// nodeLanes are what a rank has to do with the other ranks of its host, in a group that works on two
// levels: lanes of their own, over shared memory. The group's own lanes are those of its column.
type nodeLanes struct {
	region Region
	gather *engine.Gather
	reduce *engine.Reduce
	lanes  [2]*overlap.Lane // of gather and reduce
	sums   partialSums
	calls  [2]uint32        // of each class that were begun; guarded by Group.posting
	later  []postponed      // steps, the first one first; none but while an operation is made
	posted [2]atomic.Uint64 // operations of each class
	done   tally
}

// tally counts operations that are done as their callers see them, whatever steps they were made of.
type tally struct{ gather, switched, direct atomic.Uint64 }

// add counts one. A reduction went through the switch if all of its steps across the network did.
func (t *tally) add(class overlap.Class, across []*Work) {
	direct := func(w *Work) bool { return !w.Switched() }
	switch {
	case class == overlap.Gather:
		t.gather.Add(1)
	case len(across) > 0 && !slices.ContainsFunc(across, direct):
		t.switched.Add(1)
	default:
		t.direct.Add(1)
	}
}

// count has counters say what callers and the network see of a group with nodes, and apart from that what
// was given to, and taken from, ranks of this host. A nil node has nothing to say.
func (n *nodeLanes) count(s *sources) {
	if n == nil {
		return
	}
	s.gather.Done = n.done.gather.Load()
	s.reduce.Switched, s.reduce.Direct = n.done.switched.Load(), n.done.direct.Load()
	_, gather := n.gather.Stats()
	reduce := n.reduce.Stats()
	s.nodeSent = gather.SentBytes + gather.ControlBytes + reduce.SentBytes
	s.nodeReceived = gather.ReceivedBytes + reduce.ReceivedBytes
}

// startNode sets up the lanes over the region. They have no class: that of the column paces them (decision 0046).
func (g *Group) startNode(r Region) {
	a, gather := g.agreed, r.Gather()
	t := gather.Traits()
	n := &nodeLanes{region: r}
	n.gather = engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{
			Rank: a.node.own, Size: a.node.size(), Chunk: t.Chunk, Lossless: t.Lossless, Window: t.Window,
			Chains: 1, Subgroups: 1, Eager: min(a.settings.Eager, arenaBytes), Arena: arenaBytes, EagerChunks: eagerChunks,
			Cutoff: a.settings.Cutoff, Reorder: reorder,
		},
		Job: a.job, Fabric: gather, Clock: g.clock,
		Broken: g.brokenAmong(&a.node),
		Trace:  g.traced("gather of the node"),
	})
	n.reduce = engine.NewReduce(engine.ReduceConfig{
		Rank: a.node.own, Size: a.node.size(), Clock: g.clock,
		Broken: g.reduceBrokenAmong(&a.node),
		Trace:  g.traced("reduce of the node"),
	})
	n.reduce.Begin(0, nil, r.Streams())
	n.lanes = [2]*overlap.Lane{
		overlap.Gather: overlap.NewLane(n.gather),
		overlap.Reduce: overlap.NewLane(n.reduce),
	}
	g.node = n
}

// fail ends all operations. A nil node has none.
func (n *nodeLanes) fail(err error) {
	if n != nil {
		n.gather.Fail(err)
		n.reduce.Fail(err)
	}
}

// idle reports whether nothing is in flight.
func (n *nodeLanes) idle() bool {
	return n == nil || n.gather.InFlight() == 0 && n.reduce.InFlight() == 0
}

// stop ends the agents, and what is still in flight.
func (n *nodeLanes) stop() {
	if n == nil {
		return
	}
	for _, l := range n.lanes {
		l.Close()
	}
	n.gather.Work()
	n.reduce.Work()
}

// close frees what is left of a node that was stopped.
func (n *nodeLanes) close() error {
	if n == nil {
		return nil
	}
	return errors.Join(n.reduce.Close(), n.gather.Close(), n.region.Close())
}
