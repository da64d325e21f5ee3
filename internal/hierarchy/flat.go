package hierarchy

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// flat composes operations of a group with one level: each is one step.
type flat struct{ *Operations }

func (f flat) lock()   { f.posting.RLock() }
func (f flat) unlock() { f.posting.RUnlock() }

func (f flat) allgather(send, _, recv []byte, p piece) (*Work, error) {
	o := engine.GatherOp{
		Op:   multicast.Op{Collective: wire.Allgather, Bytes: len(send)},
		Send: nonNil(send), Recv: recv, After: p.follows,
	}
	return f.postGather(o, len(send), p)
}

func (f flat) allgatherInto(own, _ []byte, claims engine.GatherOp, finish func(error) error) (*Work, error) {
	joint := engine.NewJoint(1, finish)
	w, err := f.postGather(claims, len(own), piece{done: joint.Ended})
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return &Work{Work: joint.Work, lane: w.lane}, nil
}

func (f flat) broadcast(buf []byte, root int) (*Work, error) {
	o := engine.GatherOp{
		Op:   multicast.Op{Collective: wire.Broadcast, Root: root, Bytes: len(buf)},
		Recv: buf,
	}
	own := 0
	if root == f.plan.Rank {
		o.Send, own = nonNil(buf), len(buf)
	}
	return f.postGather(o, own, piece{})
}

func (f flat) barrier() (*Work, error) {
	return f.postGather(engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil)}, 0, piece{})
}

// postGather posts an operation to which this rank contributes own bytes.
func (f flat) postGather(o engine.GatherOp, own int, p piece) (*Work, error) {
	counted := entry{class: overlap.Gather, kind: o.Collective, bytes: o.Bytes, own: own, begun: o.After != nil}
	return f.post(counted, p.done, func(ended func()) (*engine.Work, error) { return f.column.Gather.Submit(o, ended) })
}

func (f flat) reduceScatter(send, recv []byte, o collective.Op, p piece) (rest func() *Work, err error) {
	o.Count = len(recv) / o.Type.Size()
	w, err := f.postReduce(wire.ReduceScatter, direct.Op{Op: o, Send: send, Recv: recv}, p)
	return func() *Work { return w }, err
}

func (f flat) reduce(send, recv []byte, o collective.Op, root int) (*Work, error) {
	o.To, o.Count = wire.ToRank(root), len(send)/o.Type.Size()
	return f.postReduce(wire.Reduce, direct.Op{Op: o, Send: send, Recv: recv}, piece{})
}

func (f flat) postReduce(kind wire.Collective, o direct.Op, p piece) (*Work, error) {
	counted := entry{class: overlap.Reduce, kind: kind, bytes: o.Bytes(), own: len(o.Recv)}
	return f.post(counted, p.done, func(ended func()) (*engine.Work, error) {
		return f.column.Reduce.Submit(engine.ReduceOp{Op: o}, ended)
	})
}

func (f flat) stepsOfAllreduce(segments []segment, _ int) (gather, reduce steps) {
	return steps{across: 1 + len(segments)}, steps{across: len(segments)}
}

func (f flat) wakeAgents() { f.column.Lanes[overlap.Gather].Posted() }

func (f flat) posts() mesh.Posted {
	return mesh.Posted{overlap.Gather: f.column.Gather.Posted(), overlap.Reduce: f.column.Reduce.Posted()}
}

func (flat) counts(column Ended) Counts { return Counts{Ended: column} }
